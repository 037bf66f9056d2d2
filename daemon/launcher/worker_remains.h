#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/process_stat.h"
#include "daemon/launcher/session_cgroup.h"

namespace monarch {

// Bounds and delays. Plain data.
struct WorkerRemainsOptions {
  // Between two looks: workers that die together are looked after together. Also until the next look where
  // nothing tells of a change: a process in the middle of an exec, a cgroup that is still busy.
  absl::Duration look_interval = absl::Milliseconds(10);
  // Then what cannot be killed (stuck in the kernel) is left to the session's end.
  absl::Duration give_up_after = absl::Seconds(10);
};

// Ends what dead workers left running, and that alone: the members of the worker's cgroup, and what this
// sub-reaper adopted that carries the worker's marks, with all below it. A look kills all that it finds and
// watches it; the end of any of it, which may have brought up more, is the cue for the next look, until one
// finds nothing. What is not in the cgroup and has replaced its environment cannot be told from a living
// worker's. Threading: confined to the launcher's loop.
class WorkerRemains {
 public:
  // What it asks; outlives it.
  class Host {
   public:
    virtual ~Host() = default;
    virtual std::vector<pid_t> UnreapedWorkers() const = 0;
  };

  WorkerRemains(EventLoop* loop, Host* host, SessionCgroup* cgroup, WorkerRemainsOptions options);
  ~WorkerRemains();
  WorkerRemains(const WorkerRemains&) = delete;
  WorkerRemains& operator=(const WorkerRemains&) = delete;

  // Environment entry of the session's processes. Once, before any Add.
  void set_session_mark(std::string mark) { session_mark_ = std::move(mark); }
  // Its process was reaped.
  void Add(const ProcAddress& proc);
  // Processes that were sent a KILL.
  size_t killed() const { return killed_; }

 private:
  struct Dead {
    ProcAddress proc;
    absl::Duration give_up_at;
  };
  // Of one look.
  struct Found {
    std::map<pid_t, std::string> whose;  // mark of the dead worker
    bool unsure = false;                 // there is something that may be theirs
  };

  void LookSoon(absl::Duration delay);
  void Look();
  Found Find() const;
  void FindAdopted(Found* found) const;
  void FindBelow(pid_t root, const std::vector<ProcessStat>& processes, Found* found) const;
  // The mark of the dead worker whose process it is; empty: of none. Nothing: cannot be told now.
  std::optional<std::string> Judge(pid_t pid) const;
  void KillAndWatch(const Found& found);
  void OnEnded(pid_t pid);
  void DropFinished(const Found& found);

  // Constant after construction, or from before the first Add.
  EventLoop* const loop_;
  Host* const host_;
  SessionCgroup* const cgroup_;
  const WorkerRemainsOptions options_;
  std::string session_mark_;

  // Confined to the loop.
  std::map<std::string, Dead> dead_;  // by mark
  std::map<pid_t, ScopedFd> watched_;
  size_t killed_ = 0;
  std::optional<EventLoop::TimerId> timer_;
  absl::Duration look_at_;  // of the timer
  absl::Duration last_look_ = -absl::InfiniteDuration();
};

}  // namespace monarch
