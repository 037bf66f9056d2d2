#include "daemon/hang_machine.h"

#include <catch2/catch.hpp>
#include <random>

namespace monarch {
namespace {

const ProcAddress kProc{HostId(Id128{1, 2}), 5, 1};
const ProcAddress kOtherProc{HostId(Id128{1, 2}), 6, 1};
const ActorAddress kActor{kProc, 3};
const ActorAddress kOther{kOtherProc, 3};

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

TEST_CASE("HangMachine.LooksNeverWhenNothingIsWatched") {
  HangMachine machine;
  CHECK_FALSE(machine.Look({{kActor, At(1)}}, At(100)).next.has_value());
  machine.Watch(kActor, At(10));
  CHECK(machine.Look({}, At(100)).next == At(110));
  machine.Forget(kActor);
  CHECK(machine.empty());
  CHECK_FALSE(machine.Look({}, At(100)).next.has_value());
}

TEST_CASE("HangMachine.AHandlerIsOverdueAtItsThresholdAndLookedAtThen") {
  HangMachine machine;
  machine.Watch(kActor, At(10));
  auto findings = machine.Look({{kActor, At(95)}}, At(100));
  CHECK(findings.overdue.empty());
  CHECK(findings.next == At(105));
  findings = machine.Look({{kActor, At(95)}}, At(105));
  REQUIRE(findings.overdue.size() == 1);
  CHECK(findings.overdue[0] == kActor);
  CHECK(findings.next == At(115));
}

TEST_CASE("HangMachine.AHandlerIsToldOnceAndItsEndOnce") {
  HangMachine machine;
  machine.Watch(kActor, At(10));
  REQUIRE(machine.Look({{kActor, At(90)}}, At(100)).overdue.size() == 1);
  CHECK(machine.Told(kActor, At(90)));
  CHECK_FALSE(machine.Told(kActor, At(90)));
  CHECK(machine.IsTold(kActor, At(90)));
  auto findings = machine.Look({{kActor, At(90)}}, At(110));
  CHECK(findings.overdue.empty());
  CHECK(findings.recovered.empty());
  findings = machine.Look({}, At(111));
  REQUIRE(findings.recovered.size() == 1);
  CHECK(findings.recovered[0].actor == kActor);
  CHECK(findings.recovered[0].began == At(90));
  CHECK(findings.recovered[0].took == At(21));
  CHECK_FALSE(machine.IsTold(kActor, At(90)));
  CHECK(machine.Look({}, At(112)).recovered.empty());
}

TEST_CASE("HangMachine.TheNextHandlerIsAnother") {
  HangMachine machine;
  machine.Watch(kActor, At(10));
  CHECK(machine.Told(kActor, At(90)));
  // Of an async actor: one that began earlier than it was seen, and is too old already.
  const auto findings = machine.Look({{kActor, At(92)}}, At(120));
  CHECK(findings.recovered.size() == 1);
  CHECK(findings.overdue.size() == 1);
}

TEST_CASE("HangMachine.WhatIsGoneIsNeitherOverdueNorRecovered") {
  HangMachine machine;
  machine.Watch(kActor, At(10));
  machine.Watch(kOther, At(20));
  CHECK(machine.Procs() == std::vector<ProcAddress>{kProc, kOtherProc});
  CHECK(machine.Told(kActor, At(90)));
  machine.ForgetProc(kProc);
  const auto findings = machine.Look({}, At(100));
  CHECK(findings.recovered.empty());
  CHECK(findings.next == At(120));
  CHECK(machine.Procs() == std::vector<ProcAddress>{kOtherProc});
  CHECK_FALSE(machine.Told(kActor, At(90)));
}

TEST_CASE("HangMachine.AThresholdHasAFloor") {
  HangMachine machine;
  machine.Watch(kActor, absl::ZeroDuration());
  CHECK(machine.ThresholdOf(kActor) == HangMachine::kThresholdMin);
  CHECK(machine.Look({}, At(1)).next == At(1) + HangMachine::kThresholdMin);
}

// Of random handlers, each that lasts for longer than the threshold and a look is found, at its threshold; no
// other is; and there are at most two looks for each threshold.
TEST_CASE("HangMachine.FindsAllThatLastAndLooksSeldom") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> idle(0, 30), length(0, 30);
  const absl::Duration threshold = At(10);
  HangMachine machine;
  machine.Watch(kActor, threshold);
  absl::Duration now = At(1), began = now, ended = began + At(length(random));
  int looks = 0, found = 0, expected = 0, recovered = 0;
  while (now < At(10000)) {
    while (ended <= now) {
      expected += ended - began > threshold;
      began = ended + At(idle(random) + 0.001);
      ended = began + At(length(random));
    }
    const bool runs = began <= now;
    const auto findings = machine.Look(
        runs ? std::vector<HangMachine::Seen>{{kActor, began}} : std::vector<HangMachine::Seen>{}, now);
    ++looks;
    recovered += static_cast<int>(findings.recovered.size());
    if (!findings.overdue.empty()) {
      CHECK(now - began >= threshold);
      CHECK(machine.Told(kActor, began));
      ++found;
    }
    REQUIRE(findings.next.has_value());
    CHECK(*findings.next > now);
    now = *findings.next;
  }
  // The last may be under way.
  CHECK((found == expected || found == expected + 1));
  CHECK((recovered == found || recovered == found - 1));
  CHECK(looks <= 2 * 1000 + 2);
}

}  // namespace
}  // namespace monarch
