#include "daemon/introducer.h"

#include <catch2/catch.hpp>

namespace monarch {

// INV-ring-once
TEST_CASE("PairIsIntroducedOnceFromEitherSide") {
  Introducer introducer(256);
  const auto first = introducer.Introduce(1, 2);
  CHECK(first.is_new);
  CHECK(first.ring);
  const auto again = introducer.Introduce(2, 1);
  CHECK_FALSE(again.is_new);
  CHECK(again.bit_in_a == first.bit_in_b);
  CHECK(again.bit_in_b == first.bit_in_a);
}

TEST_CASE("BitsOfOneProcessAreDistinct") {
  Introducer introducer(256);
  const auto b = introducer.Introduce(1, 2);
  const auto c = introducer.Introduce(1, 3);
  CHECK(b.bit_in_a != c.bit_in_a);
  CHECK(c.bit_in_b == 0);
}

TEST_CASE("BeyondTheLimitFramesAreRelayed") {
  Introducer introducer(2);
  CHECK(introducer.Introduce(1, 2).ring);
  CHECK(introducer.Introduce(3, 1).ring);
  const auto third = introducer.Introduce(1, 4);
  CHECK(third.is_new);
  CHECK_FALSE(third.ring);
  CHECK_FALSE(introducer.Introduce(4, 1).is_new);
  CHECK(introducer.Introduce(2, 4).ring);
}

TEST_CASE("AllBitsCanBeUsed") {
  Introducer introducer(1000);
  for (uint64_t peer = 2; peer < 2 + kRingBits; ++peer) REQUIRE(introducer.Introduce(1, peer).ring);
  CHECK_FALSE(introducer.Introduce(1, 5000).ring);
}

TEST_CASE("WithoutRingsNothingHasOne") {
  Introducer introducer(0);
  CHECK_FALSE(introducer.Introduce(1, 2).ring);
}

TEST_CASE("DeadPeersBitIsFreeAgain") {
  Introducer introducer(1);
  const auto first = introducer.Introduce(1, 2);
  CHECK_FALSE(introducer.Introduce(1, 3).ring);
  introducer.Remove(2);
  CHECK(introducer.pairs() == 1);
  const auto next = introducer.Introduce(1, 4);
  CHECK(next.ring);
  CHECK(next.bit_in_a == first.bit_in_a);
}

}  // namespace monarch
