#pragma once

#include <optional>

#include "absl/time/time.h"

namespace monarch {

// Bounds of a session's end. Plain data.
struct StopLadderOptions {
  // From the last sweep that found something to the next. Too long delays the end; too short burns CPU on
  // /proc.
  absl::Duration sweep_interval = absl::Milliseconds(10);
  // From the first KILL until the end is declared although something (stuck in the kernel) is left.
  absl::Duration give_up_after = absl::Seconds(10);
};

// Decides the steps of a session's end: workers asked and TERM at once, KILL at the deadline or when all
// workers have ended, sweeps until one finds nothing. Pure: time is passed in, the caller acts.
//
//   idle --Begin--> terminating --deadline, or no worker left--> sweeping --nothing found, or given up-->
//   gone
//
// Threading: confined to the launcher's loop.
class StopLadder {
 public:
  explicit StopLadder(StopLadderOptions options) : options_(options) {}

  // True: ask, and send TERM, now (the first call). A later call only brings the deadline forward.
  bool Begin(absl::Duration now, absl::Duration kill_after);
  // True: sweep now (kill what is left), then call Swept.
  bool ShouldSweep(absl::Duration now, size_t workers_alive);
  // `found`: processes the sweep saw. True: the session is gone.
  bool Swept(absl::Duration now, size_t found);
  // When to ask again; nothing while there is nothing to wait for.
  std::optional<absl::Duration> WakeAt() const;

  bool begun() const { return phase_ != Phase::kIdle; }
  bool gone() const { return phase_ == Phase::kGone; }
  // Whether the end was declared with something left.
  bool gave_up() const { return gave_up_; }

 private:
  enum class Phase { kIdle, kTerminating, kSweeping, kGone };

  const StopLadderOptions options_;
  Phase phase_ = Phase::kIdle;
  absl::Duration kill_at_;
  absl::Duration next_sweep_;
  absl::Duration give_up_at_;
  bool gave_up_ = false;
};

}  // namespace monarch
