#include "daemon/launcher/stop_ladder.h"

#include <algorithm>

namespace monarch {

bool StopLadder::Begin(absl::Duration now, absl::Duration kill_after) {
  const absl::Duration deadline = now + std::max(kill_after, absl::ZeroDuration());
  if (phase_ == Phase::kIdle) {
    phase_ = Phase::kTerminating;
    kill_at_ = deadline;
    return true;
  }
  kill_at_ = std::min(kill_at_, deadline);
  return false;
}

bool StopLadder::ShouldSweep(absl::Duration now, size_t workers_alive) {
  if (phase_ == Phase::kTerminating && (now >= kill_at_ || workers_alive == 0)) {
    phase_ = Phase::kSweeping;
    next_sweep_ = now;
    give_up_at_ = now + options_.give_up_after;
  }
  return phase_ == Phase::kSweeping && now >= next_sweep_;
}

bool StopLadder::Swept(absl::Duration now, size_t found) {
  if (phase_ != Phase::kSweeping) return gone();
  gave_up_ = found > 0 && now >= give_up_at_;
  if (found == 0 || gave_up_) {
    phase_ = Phase::kGone;
    return true;
  }
  next_sweep_ = now + options_.sweep_interval;
  return false;
}

std::optional<absl::Duration> StopLadder::WakeAt() const {
  switch (phase_) {
    case Phase::kTerminating:
      return kill_at_;
    case Phase::kSweeping:
      return next_sweep_;
    case Phase::kIdle:
    case Phase::kGone:
      break;
  }
  return std::nullopt;
}

}  // namespace monarch
