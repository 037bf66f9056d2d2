#include "daemon/launcher/death_links.h"

#include <signal.h>

#include <catch2/catch.hpp>

namespace monarch {
namespace {

using Rings = std::vector<DeathLinks::Ring>;

const ExitStatus kKilled = {0, SIGKILL, false};
const HostId kHost = HostId::Random();

ProcAddress Proc(uint64_t number, uint32_t incarnation = 1) { return {kHost, number, incarnation}; }

DeathLinks Linked() {
  DeathLinks links;
  for (uint64_t number : {1, 2, 3}) links.Add(Proc(number));
  links.Link(Proc(1), 4, Proc(2), 0);
  links.Link(Proc(3), 7, Proc(1), 5);
  return links;
}

TEST_CASE("ADeathIsToldOnceToWhoHasARingWithTheDead") {
  DeathLinks links = Linked();
  CHECK(links.OnDeath(Proc(1), kKilled) == Rings{{Proc(2), 0}, {Proc(3), 7}});
  CHECK_FALSE(links.OnDeath(Proc(1), kKilled).has_value());
  CHECK(links.OnDeath(Proc(2), ExitStatus{7, 0, false}) == Rings{{Proc(1), 4}});
}

TEST_CASE("WithoutRingsADeathIsToldToNobodyAndStillWritten") {
  DeathLinks links;
  links.Add(Proc(9));
  CHECK(links.OnDeath(Proc(9), kKilled) == Rings{});
}

TEST_CASE("WhatIsNoFailureYetIsTheDaemonsToTell") {
  DeathLinks links = Linked();
  SECTION("its cause is not known, or it left with status 0") {
    CHECK_FALSE(links.OnDeath(Proc(1), ExitStatus{}).has_value());
    CHECK(links.OnDeath(Proc(1), kKilled).has_value());
  }
  SECTION("it was asked to stop") {
    links.SetStopping(Proc(1));
    CHECK_FALSE(links.OnDeath(Proc(1), kKilled).has_value());
    CHECK(links.OnDeath(Proc(2), kKilled).has_value());
  }
  SECTION("the session ends") {
    links.SetAllStopping();
    CHECK_FALSE(links.OnDeath(Proc(1), kKilled).has_value());
  }
  SECTION("nobody knows it") { CHECK_FALSE(links.OnDeath(Proc(1, 2), kKilled).has_value()); }
}

TEST_CASE("TheForgottenAreToldNothingAndLinkedToNobody") {
  DeathLinks links = Linked();
  links.Forget(Proc(2));
  links.Link(Proc(2), 1, Proc(3), 2);
  links.SetStopping(Proc(2));
  CHECK(links.OnDeath(Proc(1), kKilled) == Rings{{Proc(3), 7}});
  CHECK(links.OnDeath(Proc(3), kKilled) == Rings{{Proc(1), 5}});
  CHECK_FALSE(links.OnDeath(Proc(2), kKilled).has_value());
}

}  // namespace
}  // namespace monarch
