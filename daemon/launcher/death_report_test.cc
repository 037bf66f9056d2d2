#include "daemon/launcher/death_report.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

constexpr ExitStatus kKilled{0, 9, false};
constexpr ExitStatus kNone{0, 0, false};

TEST_CASE("TellsAKnownCauseAtOnce") {
  DeathReport report;
  const DeathReport::Step fired = report.LifelineFired(kKilled, false);
  CHECK(fired.dying == kKilled);
  CHECK_FALSE(fired.wait);
  CHECK_FALSE(fired.exited.has_value());
  const DeathReport::Step reaped = report.Reaped(kKilled);
  CHECK_FALSE(reaped.dying.has_value());
  CHECK(reaped.exited == kKilled);
  CHECK(report.gone());
}

TEST_CASE("WaitsWhileTheCauseIsOpen") {
  DeathReport report;
  CHECK(report.LifelineFired(kNone, false).wait);
  SECTION("and tells what was reaped") {
    const DeathReport::Step reaped = report.Reaped(kKilled);
    CHECK(reaped.dying == kKilled);
    CHECK(reaped.exited == kKilled);
    CHECK_FALSE(report.WaitIsOver().dying.has_value());
  }
  SECTION("and tells without a cause when the time is over") {
    CHECK(report.WaitIsOver().dying == kNone);
    const DeathReport::Step reaped = report.Reaped(kKilled);
    CHECK_FALSE(reaped.dying.has_value());
    CHECK(reaped.exited == kKilled);
  }
}

TEST_CASE("TakesExitStatusZeroOfAZombieAsFinal") {
  DeathReport report;
  const DeathReport::Step fired = report.LifelineFired(kNone, true);
  CHECK(fired.dying == kNone);
  CHECK_FALSE(fired.wait);
}

TEST_CASE("TellsDyingBeforeExitedWithoutALifeline") {
  DeathReport report;
  const DeathReport::Step reaped = report.Reaped(ExitStatus{3, 0, false});
  CHECK(reaped.dying == ExitStatus{3, 0, false});
  CHECK(reaped.exited == ExitStatus{3, 0, false});
}

TEST_CASE("TellsNothingTwice") {
  DeathReport report;
  report.LifelineFired(kKilled, false);
  CHECK_FALSE(report.LifelineFired(kKilled, false).dying.has_value());
  report.Reaped(kKilled);
  CHECK_FALSE(report.Reaped(kKilled).exited.has_value());
  CHECK_FALSE(report.LifelineFired(kKilled, false).dying.has_value());
}

}  // namespace
}  // namespace monarch
