#pragma once

#include <optional>

#include "absl/time/time.h"

namespace monarch {

// Decides when one process that is to stop gets the stop message, TERM and KILL. Pure: time passed in.
//
//   asked --grace--> termed --kill_after--> killed (repeated, in case the order was lost with a launcher)
//
// Threading: confined to its caller.
class StopMachine {
 public:
  enum class Action { kNone, kAsk, kTerm, kKill };
  struct Plan {
    bool can_ask = false;       // it has a connection
    absl::Duration grace;       // zero: TERM at once
    absl::Duration kill_after;  // zero: KILL at once
  };

  StopMachine(const Plan& plan, absl::Duration now);

  // To be done first; once.
  Action Begin(absl::Duration now);
  // Another request for the same process: the earlier times hold. Returns what is due now.
  Action Tighten(const Plan& plan, absl::Duration now);
  Action OnTime(absl::Duration now);
  absl::Duration NextDeadline() const;
  // What it has got so far.
  Action strongest() const { return strongest_; }

 private:
  static constexpr absl::Duration kKillRepeat = absl::Seconds(1);

  Action strongest_ = Action::kNone;
  absl::Duration term_at_;
  absl::Duration kill_at_;
};

}  // namespace monarch
