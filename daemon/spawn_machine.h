#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/failure_event.h"
#include "daemon/process_types.h"

namespace monarch {

// Decides how one spawn of several processes goes on: all or nothing. Pure: events in, actions out, time
// passed in.
//
//   running --all ready--> succeeded
//   running --first failure, time-out or Abandon--> unwinding --all gone, or unwind time over--> failed
//
// Each rank goes accepted -> launched -> connected -> ready; events of later phases imply the earlier ones,
// since they come over different sockets. The launcher's word is waited for all the same: it brings the pid.
// Threading: confined to its caller.
class SpawnMachine {
 public:
  struct Actions {
    std::vector<size_t> kill;
    bool finished = false;  // told once
  };
  enum class State { kRunning, kUnwinding, kSucceeded, kFailed };

  // How long the killed ranks may take until the request is answered without their last words.
  static constexpr absl::Duration kUnwindMax = absl::Seconds(5);

  SpawnMachine(size_t ranks, absl::Duration phase_timeout, absl::Duration now);

  Actions OnLaunched(size_t rank, absl::Duration now) { return Advance(rank, ProcPhase::kLaunched, now); }
  Actions OnConnected(size_t rank, absl::Duration now) { return Advance(rank, ProcPhase::kConnected, now); }
  Actions OnReady(size_t rank, absl::Duration now) { return Advance(rank, ProcPhase::kReady, now); }
  // Dead, details to come in OnGone. `event`: kind, code and reason as known.
  Actions OnDied(size_t rank, const FailureEvent& event, absl::Duration now);
  // Nothing is left of it; also for one that could not be launched.
  Actions OnGone(size_t rank, const FailureEvent& event, absl::Duration now);
  // Nobody wants the result any more.
  Actions Abandon(const std::string& reason, absl::Duration now);
  Actions OnTime(absl::Duration now);
  std::optional<absl::Duration> NextDeadline() const;

  State state() const { return state_; }
  const std::string& abandoned_reason() const { return abandoned_; }
  bool timed_out() const { return timed_out_; }
  // Failures of those ranks that failed by themselves, in rank order: kind kStartFailed, phase = the last one
  // reached. `rank` is set; who it was otherwise is the caller's knowledge.
  std::vector<FailureEvent> Failures() const;

 private:
  struct Rank {
    ProcPhase phase = ProcPhase::kAccepted;
    absl::Duration since;
    bool launched = false;
    bool gone = false;
    bool died = false;  // the failure is its death, not a time-out
    std::optional<FailureEvent> failure;
    bool complete() const { return launched && phase == ProcPhase::kReady; }
  };

  Actions Advance(size_t rank, ProcPhase phase, absl::Duration now);
  void RecordDeath(size_t rank, const FailureEvent& event);
  Actions Unwind(absl::Duration now);
  Actions FinishIfAllGone();

  // Constant after construction.
  const absl::Duration phase_timeout_;

  // Confined to the caller.
  std::vector<Rank> ranks_;
  State state_ = State::kRunning;
  size_t complete_ = 0;
  absl::Duration unwind_deadline_;
  std::string abandoned_;
  bool timed_out_ = false;
};

}  // namespace monarch
