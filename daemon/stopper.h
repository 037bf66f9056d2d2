#pragma once

#include <list>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "daemon/proc_table.h"
#include "daemon/process_types.h"

namespace monarch {

// The stop ladders of one session's processes, and who waits for which to be gone.
// Threading: confined to the control loop.
class Stopper {
 public:
  // How each ended, in the order of the request.
  using Reply = absl::AnyInvocable<void(std::vector<FailureEvent>)>;

  class Host {
   public:
    virtual ~Host() = default;
    // It is asked, or made, to end from here on: before anything reaches it.
    virtual void OnStopping(ProcRecord& record) = 0;
    virtual void SendStop(ProcRecord& record, absl::Duration grace) = 0;
    virtual void SendSignal(ProcRecord& record, int signal) = 0;
  };

  explicit Stopper(Host* host) : host_(host) {}

  // Starts or tightens one process's ladder.
  void Stop(ProcRecord& record, const StopMachine::Plan& plan, const std::string& reason, absl::Duration now);
  // Answers when all of `request` are gone; those that are not in `procs` are taken for gone: their end from
  // its tombstones, or a bare kStopped. `reply` may come in this call.
  void StopAll(ProcTable& procs, const StopRequest& request, absl::Duration now, Reply reply);
  void OnGone(const ProcAddress& proc, const FailureEvent& event);
  void OnTime(ProcTable& procs, absl::Duration now);
  std::optional<absl::Duration> NextDeadline(const ProcTable& procs) const;

 private:
  struct Waiting {
    std::vector<ProcAddress> procs;
    std::vector<std::optional<FailureEvent>> ends;
    size_t missing = 0;
    Reply reply;
  };
  void Do(ProcRecord& record, StopMachine::Action action, absl::Duration grace);

  Host* const host_;
  std::list<Waiting> waiting_;
};

}  // namespace monarch
