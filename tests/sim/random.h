#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"
#include "base/ids.h"

namespace monarch::sim {

// All chance of one run: the same seed gives the same numbers on every machine.
// Threading: confined to the simulation's thread.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Of 0 to `count` - 1.
  uint64_t Below(uint64_t count) { return engine_() % count; }
  bool Chance(unsigned percent) { return Below(100) < percent; }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    const int64_t span = absl::ToInt64Microseconds(most - least);
    return least + absl::Microseconds(static_cast<int64_t>(Below(static_cast<uint64_t>(span) + 1)));
  }
  Id128 Id() { return Id128{engine_() | 1, engine_()}; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace monarch::sim
