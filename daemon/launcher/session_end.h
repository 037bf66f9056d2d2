#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/event_loop.h"
#include "daemon/launcher/process_stat.h"
#include "daemon/launcher/session_cgroup.h"
#include "daemon/launcher/stop_ladder.h"

namespace monarch {

// Carries out what StopLadder decides: workers are asked to clean up and leave, all else gets TERM, then KILL
// comes by every means there is (the cgroup, all descendants of this sub-reaper, whatever carries the
// session's mark) until nothing is left. Threading: confined to the launcher's loop.
class SessionEnd {
 public:
  // What it acts on; outlives it.
  class Host {
   public:
    virtual ~Host() = default;
    // Asks all that can be asked to leave within that time; which they are.
    virtual std::vector<pid_t> AskWorkers(const std::string& reason, absl::Duration grace) = 0;
    virtual std::vector<pid_t> UnreapedWorkers() const = 0;
    // Nothing is left. Once.
    virtual void OnSessionGone() = 0;
  };

  SessionEnd(EventLoop* loop, Host* host, SessionCgroup* cgroup, StopLadderOptions options);
  ~SessionEnd();
  SessionEnd(const SessionEnd&) = delete;
  SessionEnd& operator=(const SessionEnd&) = delete;

  // Environment entry of the session's processes; without one nothing is looked for by mark.
  void set_mark(std::string mark) { mark_ = std::move(mark); }
  // A later call can only bring the KILL forward.
  void Begin(const std::string& reason, absl::Duration kill_after);
  // A worker was reaped.
  void Advance();

  bool begun() const { return ladder_.begun(); }
  // Processes that were sent a KILL.
  size_t killed() const { return killed_.size(); }

 private:
  // All descendants but those.
  static void TerminateOthers(const std::vector<pid_t>& asked);
  // How many processes it found (and killed, or tried to).
  size_t Sweep();
  size_t SweepCgroup();
  size_t SweepDescendants(const std::vector<ProcessStat>& processes);
  size_t SweepMarked(const std::vector<ProcessStat>& processes);
  void Arm();

  EventLoop* const loop_;
  Host* const host_;
  SessionCgroup* const cgroup_;
  std::string mark_;
  StopLadder ladder_;
  std::unordered_set<pid_t> killed_;
  std::optional<EventLoop::TimerId> timer_;
};

// Reaps the dead children of this process that are not in `workers`: orphans that came to the sub-reaper. By
// pid, so that it cannot take a worker's status from under its owner. How many: each may have handed down
// children of its own as it ended.
size_t ReapOrphans(const std::vector<pid_t>& workers);

}  // namespace monarch
