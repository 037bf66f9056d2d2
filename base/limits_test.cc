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
  limits.ring_links_max = 0;
  CHECK(limits.Validate().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorOf(limits) == "check limits: ring_links_max=0 must be positive");
}

TEST_CASE("EveryRungOfTheTimeLadderIsChecked", "[limits]") {
  int64_t Limits::*const kLadder[] = {&Limits::host_suspected_ms, &Limits::host_dead_ms,
                                      &Limits::remote_lease_ms, &Limits::daemon_restart_ms,
                                      &Limits::daemon_absence_ms};
  for (size_t i = 0; i + 1 < std::size(kLadder); ++i) {
    Limits limits;
    limits.*kLadder[i] = limits.*kLadder[i + 1];
    INFO("rung " << i);
    CHECK(limits.Validate().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("CleanupMustFitIntoTheStopGrace", "[limits]") {
  Limits limits;
  limits.cleanup_ms = 10'000;
  CHECK(ErrorOf(limits) == "check limits: cleanup_ms=10000 must be less than stop_grace_ms=10000");
}

TEST_CASE("SizesMustFitIntoOneAnother", "[limits]") {
  Limits frame;
  frame.frame_inline_bytes_max = frame.ring_bytes;
  CHECK_FALSE(frame.Validate().ok());
  Limits ring;
  ring.ring_bytes = 20'000;
  CHECK(ErrorOf(ring) == "check limits: ring_bytes=20000 must be a power of two, at least 4096");
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
