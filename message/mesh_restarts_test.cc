#include "message/mesh_restarts.h"

#include <catch2/catch.hpp>
#include <string>

#include "message/control_message.h"

namespace monarch {
namespace {

MeshRestarts Sample() {
  MeshRestarts restarts;
  restarts.mesh = "trainers";
  restarts.of_procs = true;
  restarts.policy = "one_for_all";
  restarts.incarnation = 4;
  restarts.restarts = 3;
  restarts.given_up = true;
  restarts.cause.emplace();
  restarts.cause->kind = FailureKind::kSignalled;
  restarts.cause->rank = 2;
  restarts.cause->code = 9;
  return restarts;
}

TEST_CASE("MeshRestarts.ComeBackAsTheyWere") {
  const MeshRestarts sent = Sample();
  const absl::StatusOr<MeshRestarts> got = MeshRestartsFromValue(ToValue(sent));
  REQUIRE(got.ok());
  CHECK(got->mesh == sent.mesh);
  CHECK(got->of_procs);
  CHECK(got->policy == sent.policy);
  CHECK(got->incarnation == 4);
  CHECK(got->restarts == 3);
  CHECK(got->given_up);
  REQUIRE(got->cause.has_value());
  CHECK(got->cause->rank == 2);
  CHECK(got->cause->code == 9);
}

TEST_CASE("MeshRestarts.LongTextsOfTheCauseAreLeftOut") {
  MeshRestarts sent = Sample();
  sent.cause->reason = std::string(5000, 'r');
  sent.cause->stderr_tail = sent.cause->traceback = sent.cause->backtrace = "long";
  sent.cause->cause.push_back(*sent.cause);
  Value value = ToValue(sent);
  // Whoever sends them all the same gets no further.
  Value::Map body = *value.map();
  body["cause"] = ToValue(*sent.cause);
  for (const Value& one : {value, Value(body)}) {
    const absl::StatusOr<MeshRestarts> got = MeshRestartsFromValue(one);
    REQUIRE(got.ok());
    CHECK(got->cause->reason == std::string(1024, 'r'));
    CHECK(got->cause->stderr_tail.empty());
    CHECK(got->cause->traceback.empty());
    CHECK(got->cause->backtrace.empty());
    CHECK(got->cause->cause.empty());
  }
}

TEST_CASE("MeshRestarts.WhatIsMissingOrOfAnotherTypeIsRefused") {
  const Value whole = ToValue(Sample());
  for (const auto& [key, value] : *whole.map()) {
    INFO(key);
    Value::Map rest = *whole.map();
    rest[key] = Value(Value::List{});
    CHECK(absl::IsInvalidArgument(MeshRestartsFromValue(Value(rest)).status()));
    if (key == "cause") continue;
    rest.erase(key);
    CHECK(absl::IsInvalidArgument(MeshRestartsFromValue(Value(rest)).status()));
  }
  Value::Map negative = *whole.map();
  negative["restarts"] = Value(int64_t{-1});
  CHECK(absl::IsInvalidArgument(MeshRestartsFromValue(Value(negative)).status()));
}

}  // namespace
}  // namespace monarch
