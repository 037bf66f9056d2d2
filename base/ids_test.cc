#include "base/ids.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_set>

#include "absl/hash/hash.h"

namespace monarch {
namespace {

TEST_CASE("HexIsThirtyTwoLowerCaseDigits", "[ids]") {
  CHECK(Id128{0x0123456789abcdef, 0xfedcba9876543210}.ToHex() == "0123456789abcdeffedcba9876543210");
  CHECK(Id128{0, 1}.ToHex() == "00000000000000000000000000000001");
}

TEST_CASE("HexComesBackAsTheSameId", "[ids]") {
  for (int i = 0; i < 100; ++i) {
    const Id128 id = Id128::Random();
    CHECK(Id128::FromHex(id.ToHex()).value() == id);
  }
}

TEST_CASE("FromHexRefusesEverythingElse", "[ids]") {
  const std::string good = "0123456789abcdeffedcba9876543210";
  const std::string bad[] = {"",
                             good.substr(1),
                             good + "0",
                             "0123456789ABCDEFFEDCBA9876543210",
                             " " + good.substr(1),
                             "0x" + good.substr(2),
                             "g" + good.substr(1),
                             std::string(32, '\0'),
                             "-" + good.substr(1)};
  for (const std::string& hex : bad) {
    INFO(hex);
    CHECK(Id128::FromHex(hex).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("AParseErrorDoesNotShowTheText", "[ids]") {
  const std::string secret = "0123456789abcdeffedcba987654321Z";
  CHECK(std::string(Id128::FromHex(secret).status().message()).find("0123") == std::string::npos);
}

TEST_CASE("RandomIdsDifferAndAreNotZero", "[ids]") {
  std::set<Id128> seen;
  for (int i = 0; i < 1000; ++i) {
    const Id128 id = Id128::Random();
    CHECK_FALSE(id.is_zero());
    CHECK(seen.insert(id).second);
  }
}

TEST_CASE("IdsOfDifferentMeaningDoNotConvert", "[ids]") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<HostId, SessionId>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Id128, HostId>);
  const HostId host = HostId::Random();
  CHECK(HostId(static_cast<Id128>(host)) == host);
}

TEST_CASE("AddressesAreShownShort", "[ids]") {
  const ProcAddress proc{HostId(Id128{0x0123abcd'00000000, 5}), 7, 1};
  CHECK(proc.ToString() == "proc 7.1@0123abcd");
  CHECK(ActorAddress{proc, 3}.ToString() == "actor 3 of proc 7.1@0123abcd");
}

TEST_CASE("AddressesCompareAndHashByAllParts", "[ids]") {
  const ProcAddress proc{HostId(Id128{1, 2}), 7, 1};
  ProcAddress restarted = proc;
  restarted.incarnation = 2;
  CHECK(proc < restarted);
  const std::unordered_set<ActorAddress, absl::Hash<ActorAddress>> set = {
      {proc, 1}, {proc, 2}, {restarted, 1}, {proc, 1}};
  CHECK(set.size() == 3);
  CHECK(set.contains(ActorAddress{restarted, 1}));
  CHECK(absl::Hash<HostId>()(HostId(Id128{1, 2})) == absl::Hash<HostId>()(HostId(Id128{1, 2})));
}

}  // namespace
}  // namespace monarch
