#include "daemon/launcher/stop_ladder.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

constexpr absl::Duration kStart = absl::Seconds(100);
const StopLadderOptions kOptions{absl::Milliseconds(10), absl::Seconds(5)};

TEST_CASE("TermsOnceAndKillsAtTheDeadline") {
  StopLadder ladder(kOptions);
  CHECK_FALSE(ladder.WakeAt().has_value());
  CHECK(ladder.Begin(kStart, absl::Seconds(1)));
  CHECK_FALSE(ladder.Begin(kStart, absl::Seconds(9)));
  CHECK(ladder.WakeAt() == kStart + absl::Seconds(1));
  CHECK_FALSE(ladder.ShouldSweep(kStart + absl::Milliseconds(999), 2));
  CHECK(ladder.ShouldSweep(kStart + absl::Seconds(1), 2));
}

TEST_CASE("ALaterBeginOnlyBringsTheDeadlineForward") {
  StopLadder ladder(kOptions);
  ladder.Begin(kStart, absl::Seconds(10));
  ladder.Begin(kStart + absl::Seconds(1), absl::Seconds(1));
  CHECK(ladder.WakeAt() == kStart + absl::Seconds(2));
}

TEST_CASE("SweepsEarlyWhenAllWorkersHaveEnded") {
  StopLadder ladder(kOptions);
  ladder.Begin(kStart, absl::Seconds(10));
  CHECK_FALSE(ladder.ShouldSweep(kStart, 1));
  CHECK(ladder.ShouldSweep(kStart, 0));
  CHECK(ladder.Swept(kStart, 0));
  CHECK(ladder.gone());
  CHECK_FALSE(ladder.gave_up());
  CHECK_FALSE(ladder.WakeAt().has_value());
}

TEST_CASE("SweepsAgainUntilNothingIsFound") {
  StopLadder ladder(kOptions);
  ladder.Begin(kStart, absl::ZeroDuration());
  REQUIRE(ladder.ShouldSweep(kStart, 3));
  CHECK_FALSE(ladder.Swept(kStart, 3));
  CHECK_FALSE(ladder.ShouldSweep(kStart + absl::Milliseconds(5), 1));
  REQUIRE(ladder.ShouldSweep(kStart + absl::Milliseconds(10), 1));
  CHECK(ladder.Swept(kStart + absl::Milliseconds(10), 0));
}

TEST_CASE("GivesUpOnWhatCannotBeKilled") {
  StopLadder ladder(kOptions);
  ladder.Begin(kStart, absl::ZeroDuration());
  REQUIRE(ladder.ShouldSweep(kStart, 1));
  CHECK_FALSE(ladder.Swept(kStart, 1));
  REQUIRE(ladder.ShouldSweep(kStart + absl::Seconds(5), 1));
  CHECK(ladder.Swept(kStart + absl::Seconds(5), 1));
  CHECK(ladder.gave_up());
}

TEST_CASE("ANegativeDelayIsNone") {
  StopLadder ladder(kOptions);
  ladder.Begin(kStart, absl::Seconds(-5));
  CHECK(ladder.WakeAt() == kStart);
}

}  // namespace
}  // namespace monarch
