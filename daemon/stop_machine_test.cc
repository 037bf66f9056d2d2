#include "daemon/stop_machine.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

using Action = StopMachine::Action;
const absl::Duration kStart = absl::Seconds(100);

StopMachine::Plan Asking() {
  StopMachine::Plan plan;
  plan.can_ask = true;
  plan.grace = absl::Seconds(10);
  plan.kill_after = absl::Seconds(1);
  return plan;
}

}  // namespace

TEST_CASE("AsksThenTermsThenKills") {
  StopMachine machine(Asking(), kStart);
  CHECK(machine.Begin(kStart) == Action::kAsk);
  CHECK(machine.NextDeadline() == kStart + absl::Seconds(10));
  CHECK(machine.OnTime(kStart + absl::Seconds(9)) == Action::kNone);
  CHECK(machine.OnTime(kStart + absl::Seconds(10)) == Action::kTerm);
  CHECK(machine.OnTime(kStart + absl::Seconds(10)) == Action::kNone);
  CHECK(machine.NextDeadline() == kStart + absl::Seconds(11));
  CHECK(machine.OnTime(kStart + absl::Seconds(11)) == Action::kKill);
  CHECK(machine.strongest() == Action::kKill);
}

TEST_CASE("KillIsRepeated") {
  StopMachine machine(StopMachine::Plan{}, kStart);
  CHECK(machine.Begin(kStart) == Action::kKill);
  CHECK(machine.OnTime(kStart) == Action::kNone);
  CHECK(machine.OnTime(machine.NextDeadline()) == Action::kKill);
}

TEST_CASE("OneThatCannotBeAskedGetsTermAtOnce") {
  StopMachine::Plan plan = Asking();
  plan.can_ask = false;
  StopMachine machine(plan, kStart);
  CHECK(machine.Begin(kStart) == Action::kTerm);
  CHECK(machine.NextDeadline() == kStart + absl::Seconds(1));
}

TEST_CASE("TheTighterOfTwoRequestsHolds") {
  StopMachine machine(Asking(), kStart);
  machine.Begin(kStart);
  StopMachine::Plan later = Asking();
  later.grace = absl::Seconds(60);
  CHECK(machine.Tighten(later, kStart) == Action::kNone);
  CHECK(machine.NextDeadline() == kStart + absl::Seconds(10));
  CHECK(machine.Tighten(StopMachine::Plan{}, kStart + absl::Seconds(1)) == Action::kKill);
}

}  // namespace monarch
