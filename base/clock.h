#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace monarch {

// Monotonic time since an arbitrary start; durations and deadlines use nothing else.
// Threading: implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Duration Now() const = 0;
};

// CLOCK_MONOTONIC.
// Threading: thread-safe.
class SystemClock : public Clock {
 public:
  absl::Duration Now() const override;
};

// CLOCK_MONOTONIC as of the last tick, some milliseconds ago, in nanoseconds: a fifth of the price.
int64_t RecentNs();

// Stands still until told; for tests.
// Threading: thread-safe.
class SimClock : public Clock {
 public:
  absl::Duration Now() const override { return absl::Nanoseconds(ns_.load()); }
  void Advance(absl::Duration by) { ns_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> ns_{1'000'000'000};
};

// What the calendar says: for people and records. It jumps when the machine's clock is set, so no deadline
// and no duration comes from it. Thread-safe.
absl::Time WallTime();

}  // namespace monarch
