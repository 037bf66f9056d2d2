#include "daemon/spawn_machine.h"

#include <signal.h>

#include <catch2/catch.hpp>

namespace monarch {
namespace {

using State = SpawnMachine::State;

const absl::Duration kStart = absl::Seconds(100);
const absl::Duration kPhase = absl::Seconds(30);

FailureEvent Exited(int code) {
  FailureEvent event;
  event.kind = FailureKind::kExited;
  event.code = code;
  return event;
}

FailureEvent Killed(int signal) {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = signal;
  return event;
}

}  // namespace

TEST_CASE("SucceedsWhenAllAreReady") {
  SpawnMachine machine(2, kPhase, kStart);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK_FALSE(machine.OnLaunched(rank, kStart).finished);
    CHECK_FALSE(machine.OnConnected(rank, kStart).finished);
    CHECK(machine.OnReady(rank, kStart).finished == (rank == 1));
  }
  CHECK(machine.state() == State::kSucceeded);
  CHECK_FALSE(machine.NextDeadline());
  CHECK_FALSE(machine.OnReady(1, kStart).finished);
}

TEST_CASE("LaterPhaseImpliesEarlierOnes") {
  SpawnMachine machine(1, kPhase, kStart);
  CHECK_FALSE(machine.OnConnected(0, kStart).finished);
  CHECK_FALSE(machine.OnLaunched(0, kStart + kPhase / 2).finished);
  // The late word of the launch did not start the phase anew.
  CHECK(machine.NextDeadline() == kStart + kPhase);
  CHECK(machine.OnReady(0, kStart).finished);
}

TEST_CASE("WaitsForTheLaunchersWord") {
  SpawnMachine machine(1, kPhase, kStart);
  CHECK_FALSE(machine.OnConnected(0, kStart).finished);
  CHECK_FALSE(machine.OnReady(0, kStart).finished);
  CHECK(machine.NextDeadline() == kStart + kPhase);
  CHECK(machine.OnLaunched(0, kStart).finished);
}

TEST_CASE("FirstDeathKillsTheOthersAndWaitsForThem") {
  SpawnMachine machine(3, kPhase, kStart);
  machine.OnLaunched(1, kStart);
  const auto died = machine.OnDied(1, Exited(3), kStart);
  CHECK(died.kill == std::vector<size_t>{0, 1, 2});
  CHECK_FALSE(died.finished);
  FailureEvent confirmed = Exited(3);
  confirmed.stderr_tail = "why\n";
  CHECK_FALSE(machine.OnGone(1, confirmed, kStart).finished);
  CHECK_FALSE(machine.OnGone(0, Killed(SIGKILL), kStart).finished);
  CHECK(machine.OnGone(2, Killed(SIGKILL), kStart).finished);
  const auto failures = machine.Failures();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].kind == FailureKind::kStartFailed);
  CHECK(failures[0].rank == 1);
  CHECK(failures[0].code == 3);
  CHECK(failures[0].phase == "launched");
  CHECK(failures[0].reason == "exited with status 3 before it was ready");
  CHECK(failures[0].stderr_tail == "why\n");
}

TEST_CASE("RanksThatFailByThemselvesWhileUnwindingAreListedToo") {
  SpawnMachine machine(3, kPhase, kStart);
  machine.OnGone(0, Exited(1), kStart);
  machine.OnGone(1, Exited(2), kStart);
  CHECK(machine.OnGone(2, Killed(SIGKILL), kStart).finished);
  REQUIRE(machine.Failures().size() == 2);
  CHECK(machine.Failures()[1].code == 2);
}

TEST_CASE("EachPhaseHasItsOwnDeadline") {
  SpawnMachine machine(1, kPhase, kStart);
  machine.OnLaunched(0, kStart + kPhase / 2);
  CHECK(machine.OnTime(kStart + kPhase).kill.empty());
  CHECK(machine.NextDeadline() == kStart + kPhase / 2 + kPhase);
  const auto late = machine.OnTime(kStart + kPhase / 2 + kPhase);
  CHECK(late.kill == std::vector<size_t>{0});
  CHECK(machine.timed_out());
  FailureEvent end = Killed(SIGKILL);
  end.stderr_tail = "loading\n";
  CHECK(machine.OnGone(0, end, kStart).finished);
  REQUIRE(machine.Failures().size() == 1);
  CHECK(machine.Failures()[0].reason == "launched, but has not connected within 30000 ms");
  CHECK(machine.Failures()[0].stderr_tail == "loading\n");
}

TEST_CASE("UnwindingIsBounded") {
  SpawnMachine machine(2, kPhase, kStart);
  machine.OnDied(0, Exited(1), kStart);
  REQUIRE(machine.NextDeadline() == kStart + SpawnMachine::kUnwindMax);
  CHECK_FALSE(machine.OnTime(kStart).finished);
  CHECK(machine.OnTime(kStart + SpawnMachine::kUnwindMax).finished);
  CHECK(machine.state() == State::kFailed);
  CHECK_FALSE(machine.OnGone(1, Killed(SIGKILL), kStart).finished);
}

TEST_CASE("AbandonedSpawnKillsAllAndListsNoRank") {
  SpawnMachine machine(2, kPhase, kStart);
  CHECK(machine.Abandon("its client has ended", kStart).kill.size() == 2);
  machine.OnGone(0, Killed(SIGKILL), kStart);
  CHECK(machine.OnGone(1, Killed(SIGKILL), kStart).finished);
  CHECK(machine.Failures().empty());
  CHECK(machine.abandoned_reason() == "its client has ended");
}

TEST_CASE("DeathAfterSuccessIsNotTheSpawns") {
  SpawnMachine machine(1, kPhase, kStart);
  machine.OnLaunched(0, kStart);
  machine.OnReady(0, kStart);
  CHECK_FALSE(machine.OnDied(0, Killed(SIGSEGV), kStart).finished);
  CHECK(machine.state() == State::kSucceeded);
}

TEST_CASE("SignalIsNamedInTheReason") {
  SpawnMachine machine(1, kPhase, kStart);
  CHECK(machine.OnGone(0, Killed(SIGSEGV), kStart).finished);
  CHECK(machine.Failures()[0].reason == "killed by signal 11 (SIGSEGV)");
}

}  // namespace monarch
