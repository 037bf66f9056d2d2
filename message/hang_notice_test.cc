#include "message/hang_notice.h"

#include <catch2/catch.hpp>

#include "message/control_message.h"

namespace monarch {
namespace {

HangNotice Sample() {
  HangNotice notice;
  const ProcAddress proc{HostId(Id128{1, 2}), 3, 1};
  notice.owner = {proc, 1};
  notice.event.kind = FailureKind::kHung;
  notice.event.mesh = "trainers";
  notice.event.rank = 3;
  notice.event.actor = {proc, 9};
  notice.event.pid = 77;
  notice.hang = {"train", absl::Milliseconds(65040), "waiting", "futex_wait", false};
  notice.event.reason = notice.hang.Text();
  return notice;
}

TEST_CASE("HangNotice.ComesBackAsItWas") {
  const HangNotice sent = Sample();
  const absl::StatusOr<HangNotice> got = HangNoticeFromValue(ToValue(sent));
  REQUIRE(got.ok());
  CHECK(got->owner == sent.owner);
  CHECK(got->event.actor == sent.event.actor);
  CHECK(got->event.mesh == "trainers");
  CHECK(got->event.rank == 3);
  CHECK(got->event.reason == "train has been at work for 65.0 s: waiting (futex_wait)");
  CHECK(got->hang.method == "train");
  CHECK(got->hang.age == sent.hang.age);
  CHECK(got->hang.state == "waiting");
  CHECK(got->hang.wait_channel == "futex_wait");
  CHECK_FALSE(got->hang.recovered);
}

TEST_CASE("HangNotice.ARecoveryTellsHowLongItTook") {
  Hang hang = Sample().hang;
  hang.recovered = true;
  CHECK(hang.Text() == "train has ended after 65.0 s");
}

TEST_CASE("HangNotice.WhatIsMissingOrOfAnotherKindIsRefused") {
  const Value whole = ToValue(Sample());
  for (const auto& [key, value] : *whole.map()) {
    INFO(key);
    Value::Map rest = *whole.map();
    rest.erase(key);
    CHECK(absl::IsInvalidArgument(HangNoticeFromValue(Value(rest)).status()));
    rest[key] = Value(Value::List{});
    CHECK(absl::IsInvalidArgument(HangNoticeFromValue(Value(rest)).status()));
  }
  HangNotice death = Sample();
  death.event.kind = FailureKind::kExited;
  CHECK(absl::IsInvalidArgument(HangNoticeFromValue(ToValue(death)).status()));
}

}  // namespace
}  // namespace monarch
