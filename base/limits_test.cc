#include "base/limits.h"

#include <catch2/catch.hpp>
#include <iterator>
#include <set>
#include <string>

namespace monarch {
namespace {

std::string ErrorOf(const Limits& limits) { return std::string(limits.Validate().message()); }

TEST_CASE("TheDefaultsAreValid", "[limits]") { CHECK(Limits().Validate() == absl::OkStatus()); }

TEST_CASE("ALimitThatIsNotPositiveIsNamed", "[limits]") {
  Limits limits;
  limits.calls_pending_max = 0;
  CHECK(limits.Validate().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorOf(limits) == "check limits: calls_pending_max=0 must be positive");
}

TEST_CASE("ALimitBeyondWhatAFormatCanHoldIsNamed", "[limits]") {
  Limits limits;
  limits.ring_links_max = 0;
  limits.frame_inline_bytes_max = 4096;
  CHECK(limits.Validate() == absl::OkStatus());
  limits.ring_links_max = 257;
  CHECK(ErrorOf(limits) == "check limits: ring_links_max=257 must be from 0 to 256");
  limits.ring_links_max = 256;
  limits.frame_inline_bytes_max = 4097;
  CHECK(ErrorOf(limits) == "check limits: frame_inline_bytes_max=4097 must be from 1 to 4096");
}

TEST_CASE("EveryRungOfTheTimeLadderIsChecked", "[limits]") {
  int64_t Limits::*const kLadder[] = {&Limits::host_dead_ms, &Limits::remote_lease_ms,
                                      &Limits::daemon_absence_ms};
  for (size_t i = 0; i + 1 < std::size(kLadder); ++i) {
    Limits limits;
    limits.*kLadder[i] = limits.*kLadder[i + 1];
    INFO("rung " << i);
    CHECK(limits.Validate().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("ARelationThatDoesNotHoldIsNamed", "[limits]") {
  Limits limits;
  limits.session_end_kill_ms = 10'000;
  CHECK(ErrorOf(limits) == "check limits: session_end_kill_ms=10000 must be less than stop_grace_ms=10000");
}

TEST_CASE("TheEnvironmentSetsLimitsByTheirNames", "[limits]") {
  const char* const environment[] = {"PATH=/bin", "MONARCH_LIMIT_SEND_WAIT_MS=500",
                                     "MONARCH_LIMIT_MAILBOX_BYTES_MAX=1000", nullptr};
  Limits limits;
  CHECK(SetLimitsFromEnvironment(environment, &limits) == absl::OkStatus());
  CHECK(limits.send_wait_ms == 500);
  CHECK(limits.mailbox_bytes_max == 1000);
  CHECK(limits.call_depth_max == Limits().call_depth_max);
}

TEST_CASE("AVariableThatSetsNoLimitIsNamedAndNothingIsSet", "[limits]") {
  const struct {
    const char* variable;
    const char* error;
  } kCases[] = {
      {"MONARCH_LIMIT_SEND_WAIT=5", "MONARCH_LIMIT_SEND_WAIT: there is no such limit"},
      {"MONARCH_LIMIT_CALL_DEPTH_MAX=many", "MONARCH_LIMIT_CALL_DEPTH_MAX=many: a limit is a whole number"},
      {"MONARCH_LIMIT_CALL_DEPTH_MAX=", "MONARCH_LIMIT_CALL_DEPTH_MAX=: a limit is a whole number"},
      {"MONARCH_LIMIT_CALL_DEPTH_MAX", "MONARCH_LIMIT_CALL_DEPTH_MAX=: a limit is a whole number"},
      {"MONARCH_LIMIT_=1", "MONARCH_LIMIT_: there is no such limit"},
  };
  for (const auto& one : kCases) {
    const char* const environment[] = {"MONARCH_LIMIT_SEND_WAIT_MS=500", one.variable, nullptr};
    Limits limits;
    const absl::Status status = SetLimitsFromEnvironment(environment, &limits);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message() == one.error);
    CHECK(limits.send_wait_ms == Limits().send_wait_ms);
  }
}

TEST_CASE("TheTableHasEachNameOnceWithItsValue", "[limits]") {
  Limits limits;
  limits.send_wait_ms = 1234;
  const std::vector<LimitEntry> table = LimitTable(limits);
  CHECK(table.size() * sizeof(int64_t) == sizeof(Limits));
  std::set<std::string_view> names;
  for (const LimitEntry& entry : table) {
    CHECK(names.insert(entry.name).second);
    if (entry.name == "send_wait_ms") CHECK(entry.value == 1234);
    if (entry.name == "mailbox_bytes_max") CHECK(entry.value == 64 * 1024 * 1024);
  }
  CHECK(names.contains("send_wait_ms"));
  CHECK(names.contains("mailbox_bytes_max"));
}

}  // namespace
}  // namespace monarch
