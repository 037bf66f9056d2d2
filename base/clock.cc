#include "base/clock.h"

#include <time.h>

#include "absl/time/clock.h"
#include "base/check.h"

namespace monarch {

absl::Duration SystemClock::Now() const {
  timespec now;
  MONARCH_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return absl::DurationFromTimespec(now);
}

absl::Time WallTime() { return absl::Now(); }

}  // namespace monarch
