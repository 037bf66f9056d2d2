#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  // At the threshold, and once more when that handler, which began then, has ended. Never in a call of Watch
  // or Forget.
  using Report = std::function<void(const ActorAddress&, const Hang&, absl::Duration began)>;

  // `procs` outlives it.
  HangWatch(EventLoop* loop, ProcTable* procs, Report report);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  // Zero or less: not at all.
  void Watch(const ActorAddress& actor, absl::Duration threshold);
  // The last daemon told of the handler of this actor that began then: once the actor is watched here, that
  // counts as told.
  void Adopt(const ActorAddress& actor, absl::Duration began, std::string method);
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
  std::map<ActorAddress, std::string> methods_;                             // of those that were told
  std::map<ActorAddress, std::pair<absl::Duration, std::string>> adopted_;  // that are not watched yet
  EventLoop::TimerId timer_ = 0;
  absl::Duration timer_at_;
};

}  // namespace monarch
