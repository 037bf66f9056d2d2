#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/escaping.h"
#include "message/control_message.h"

namespace monarch {
namespace {

const ProcAddress kProc = {HostId({0x1011121314151617, 0x18191a1b1c1d1e1f}), 7, 2};

FailureEvent Sample() {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.mesh = "m";
  event.rank = 4;
  event.actor = {kProc, 8};
  event.pid = 12;
  event.code = 9;
  FailureEvent cause;
  cause.kind = FailureKind::kException;
  cause.reason = "r";
  event.cause.push_back(cause);
  return event;
}

FailureEvent Chain(int depth) {
  FailureEvent event;
  event.reason = "end";
  for (int i = 0; i < depth; ++i) {
    FailureEvent outer;
    outer.cause.push_back(std::move(event));
    event = std::move(outer);
  }
  return event;
}

// Not through ToValue, which would cut it.
Value ChainValue(int depth) {
  Value value = Value::Map{};
  for (int i = 0; i < depth; ++i) value = Value::Map{{"cause", Value::List{value}}};
  return value;
}

int DepthOf(const FailureEvent& event) { return event.cause.empty() ? 0 : 1 + DepthOf(event.cause.front()); }

void CheckRefused(const Value& value) {
  INFO(value.ToString());
  const auto event = FailureEventFromValue(value);
  REQUIRE_FALSE(event.ok());
  CHECK(event.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("FailureEventBytesAreGolden") {
  CHECK(absl::BytesToHexString(EncodeFailureEvent(Sample())) ==
        "0807000000050000006163746f7207040000000610000000101112131415161718191a1b1c1d1e1f0307000000000000"
        "0003020000000000000003080000000000000005000000636175736507010000000802000000040000006b696e640301"
        "0000000000000006000000726561736f6e05010000007204000000636f6465030900000000000000040000006b696e64"
        "030300000000000000040000006d65736805010000006d03000000706964030c000000000000000400000072616e6b03"
        "0400000000000000");
}

TEST_CASE("FailureEventRoundTripsEveryField") {
  FailureEvent want = Sample();
  want.rank_label = "{'gpus': 3/8}";
  want.actor_class = "mod.Class";
  want.host_name = "host";
  want.unix_ms = 1'700'000'000'000;
  want.phase = "launched";
  want.reason = "reason";
  want.stderr_tail = "line\nline\n";
  want.traceback = "Traceback";
  want.backtrace = "#0 f";
  want.code = -5;
  want.rank = std::numeric_limits<uint32_t>::max();
  const auto got = DecodeFailureEvent(EncodeFailureEvent(want));
  REQUIRE(got.ok());
  CHECK(got->kind == want.kind);
  CHECK(got->mesh == want.mesh);
  CHECK(got->rank == want.rank);
  CHECK(got->rank_label == want.rank_label);
  CHECK(got->actor_class == want.actor_class);
  CHECK(got->actor == want.actor);
  CHECK(got->host_name == want.host_name);
  CHECK(got->pid == want.pid);
  CHECK(got->code == want.code);
  CHECK(got->unix_ms == want.unix_ms);
  CHECK(got->phase == want.phase);
  CHECK(got->reason == want.reason);
  CHECK(got->stderr_tail == want.stderr_tail);
  CHECK(got->traceback == want.traceback);
  CHECK(got->backtrace == want.backtrace);
  REQUIRE(got->cause.size() == 1);
  CHECK(got->cause[0].kind == FailureKind::kException);
  CHECK(got->cause[0].reason == "r");
}

TEST_CASE("FailureEventLeavesDefaultsOut") {
  CHECK(ToValue(FailureEvent()) == Value(Value::Map()));
  CHECK(FailureEventFromValue(Value::Map()).ok());
}

TEST_CASE("FailureEventRepairsTextThatIsNotUtf8") {
  FailureEvent event;
  event.stderr_tail = "cut \xC3";
  const auto got = DecodeFailureEvent(EncodeFailureEvent(event));
  REQUIRE(got.ok());
  CHECK(got->stderr_tail == "cut \xEF\xBF\xBD");
}

TEST_CASE("FailureEventCutsTextBeyondSixteenMebibytes") {
  constexpr size_t kMax = 16 << 20;
  FailureEvent event;
  event.reason = std::string(kMax - 1, 'a') + "\xC3\xA9 and more";
  const auto got = DecodeFailureEvent(EncodeFailureEvent(event));
  REQUIRE(got.ok());
  // Cut in the middle of a character, which is repaired.
  CHECK(got->reason == std::string(kMax - 1, 'a') + "\xEF\xBF\xBD");
}

TEST_CASE("FailureEventTakesSixteenNestedCauses") {
  CHECK(FailureEventFromValue(ChainValue(16)).ok());
  CheckRefused(ChainValue(17));
  const auto cut = DecodeFailureEvent(EncodeFailureEvent(Chain(40)));
  REQUIRE(cut.ok());
  CHECK(DepthOf(*cut) == 16);
}

TEST_CASE("FailureEventRefusesWrongFields") {
  CheckRefused(Value());
  CheckRefused(Value::List());
  CheckRefused(Value::Map{{"kind", 9}});
  CheckRefused(Value::Map{{"kind", -1}});
  CheckRefused(Value::Map{{"kind", "exited"}});
  CheckRefused(Value::Map{{"rank", int64_t{1} << 32}});
  CheckRefused(Value::Map{{"rank", -1}});
  CheckRefused(Value::Map{{"code", int64_t{1} << 31}});
  CheckRefused(Value::Map{{"mesh", 1}});
  CheckRefused(Value::Map{{"actor", ToValue(kProc)}});
  CheckRefused(Value::Map{{"cause", Value::Map()}});
  CheckRefused(Value::Map{{"cause", Value::List{Value::Map(), Value::Map()}}});
  CheckRefused(Value::Map{{"cause", Value::List{1}}});
  CheckRefused(Value::Map{{"unheard_of", 1}});
}

TEST_CASE("FailureEventRefusesBrokenBytes") {
  const std::string bytes = EncodeFailureEvent(Sample());
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(DecodeFailureEvent(bytes.substr(0, size)).ok());
  CHECK_FALSE(DecodeFailureEvent(bytes + '\0').ok());
}

}  // namespace
}  // namespace monarch
