#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "daemon/activity_state.h"
#include "daemon/hang_machine.h"
#include "daemon/proc_table.h"
#include "message/hang_notice.h"

namespace monarch {

// Watches the handlers of one session's actors on this host, those with a threshold, in the pages that their
// processes share: no process is asked for anything, and none does anything for it. One timer while an actor
// is watched, none else. Threading: confined to the control loop.
class HangWatch {
 public:
  // At the threshold, and once more when that handler has ended. Never in a call of Watch or Forget.
  using Report = std::function<void(const ActorAddress&, const Hang&)>;

  // `procs` outlives it.
  HangWatch(EventLoop* loop, ProcTable* procs, Report report);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  // Zero or less: not at all.
  void Watch(const ActorAddress& actor, absl::Duration threshold);
  // What was told of it needs no end: its own is told otherwise.
  void Forget(const ActorAddress& actor);
  void ForgetProc(const ProcAddress& proc);
  // Some handler of the process that was told has ended, says the process.
  void OnHandlerEnded();
  bool IsHung(const ActorActivity& activity) const { return machine_.IsTold(activity.actor, activity.began); }

 private:
  void Look();
  void LookCloser(const std::vector<ActorAddress>& overdue);
  void Tell(const ActorActivity& found);
  void LookAt(absl::Duration when);

  EventLoop* const loop_;
  ProcTable* const procs_;
  const Report report_;
  const std::shared_ptr<bool> alive_;
  HangMachine machine_;
  std::map<ActorAddress, std::string> methods_;  // of those that were told
  EventLoop::TimerId timer_ = 0;
  absl::Duration timer_at_;
};

}  // namespace monarch
