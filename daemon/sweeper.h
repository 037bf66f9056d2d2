#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <string>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "daemon/launcher/session_cgroup.h"

namespace monarch {

// Ends what is left of a session whose launcher is gone. Threading: confined to the control loop.
class Sweeper {
 public:
  static constexpr char kMark[] = "MONARCH_SESSION=";

  virtual ~Sweeper() = default;
  // Children of this process that are not to be killed: the launchers.
  virtual void AddKnownChild(pid_t pid) = 0;
  virtual void RemoveKnownChild(pid_t pid) = 0;
  // `done` is told how many processes were killed; it comes later, never in this call.
  virtual void Sweep(const SessionId& session, absl::AnyInvocable<void(int killed)> done) = 0;
};

// Kills processes of this user that carry the session's mark in their environment, members of its cgroup, and
// children that this process inherited (it is a sub-reaper), which are none of `known`. Repeats until a look
// finds none: a process can fork while it is being looked for. Then removes the cgroup.
// Threading: as Sweeper.
class ProcessSweeper final : public Sweeper {
 public:
  explicit ProcessSweeper(EventLoop* loop) : loop_(loop), alive_(std::make_shared<bool>(true)) {}

  void AddKnownChild(pid_t pid) override { known_.insert(pid); }
  void RemoveKnownChild(pid_t pid) override { known_.erase(pid); }
  void Sweep(const SessionId& session, absl::AnyInvocable<void(int killed)> done) override;

 private:
  void Round(SessionId session, int rounds_left, int killed, absl::AnyInvocable<void(int killed)> done);
  // How many it found (and killed or reaped).
  int KillOnce(const std::string& mark, int* killed);
  // Of the session's cgroup, whatever their environment. The kernel kills them without counting.
  static int KillMembers(const SessionCgroup& cgroup, int* killed);

  EventLoop* const loop_;
  const std::shared_ptr<bool> alive_;
  std::set<pid_t> known_;
};

}  // namespace monarch
