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

int64_t RecentNs() {
  timespec now;
  MONARCH_CHECK(clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::Time WallTime() { return absl::Now(); }

}  // namespace monarch
