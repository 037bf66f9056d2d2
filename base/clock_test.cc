#include "base/clock.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

TEST_CASE("SystemTimeMovesForward", "[clock]") {
  const SystemClock clock;
  const absl::Duration first = clock.Now();
  absl::Duration now = first;
  while (now == first) {
    now = clock.Now();
    REQUIRE(now >= first);
  }
  CHECK(now > first);
}

TEST_CASE("SimulatedTimeStandsStillUntilTold", "[clock]") {
  SimClock clock;
  const absl::Duration start = clock.Now();
  CHECK(clock.Now() == start);
  clock.Advance(absl::Milliseconds(250));
  CHECK(clock.Now() == start + absl::Milliseconds(250));
}

TEST_CASE("WallTimeIsInThisEra", "[clock]") { CHECK(WallTime() > absl::FromUnixSeconds(1'600'000'000)); }

}  // namespace
}  // namespace monarch
