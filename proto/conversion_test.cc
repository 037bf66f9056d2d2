#include <catch2/catch.hpp>

#include "base/failure_event.h"
#include "base/ids.h"
#include "google/protobuf/descriptor.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

ProcAddress SomeProc() { return ProcAddress{HostId(Id128{0x0123456789abcdef, 0xfedcba9876543210}), 7, 3}; }

FailureEvent FullEvent() {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.mesh = "trainers";
  event.rank = 5;
  event.rank_label = "{'gpus': 5/8}";
  event.actor_class = "m.Trainer";
  event.actor = ActorAddress{SomeProc(), 11};
  event.host_name = "node1";
  event.pid = 4321;
  event.code = 9;
  event.unix_ms = 1700000000123;
  event.phase = "launched";
  event.reason = "killed";
  event.stderr_tail = "line\n";
  event.traceback = "frame\n";
  event.backtrace = "#0 f";
  return event;
}

void RequireEqual(const FailureEvent& a, const FailureEvent& b) {
  REQUIRE(a.kind == b.kind);
  REQUIRE(a.mesh == b.mesh);
  REQUIRE(a.rank == b.rank);
  REQUIRE(a.rank_label == b.rank_label);
  REQUIRE(a.actor_class == b.actor_class);
  REQUIRE(a.actor == b.actor);
  REQUIRE(a.host_name == b.host_name);
  REQUIRE(a.pid == b.pid);
  REQUIRE(a.code == b.code);
  REQUIRE(a.unix_ms == b.unix_ms);
  REQUIRE(a.phase == b.phase);
  REQUIRE(a.reason == b.reason);
  REQUIRE(a.stderr_tail == b.stderr_tail);
  REQUIRE(a.traceback == b.traceback);
  REQUIRE(a.backtrace == b.backtrace);
  REQUIRE(a.cause.size() == b.cause.size());
  for (size_t i = 0; i < a.cause.size(); ++i) RequireEqual(a.cause[i], b.cause[i]);
}

}  // namespace

TEST_CASE("IdBytesAreBigEndianAndRoundTrip") {
  const Id128 id{0x0102030405060708, 0x090a0b0c0d0e0f10};
  const std::string bytes = ToProtoBytes(id);
  REQUIRE(bytes.size() == 16);
  for (int i = 0; i < 16; ++i) REQUIRE(bytes[i] == i + 1);
  REQUIRE(*Id128FromProtoBytes(bytes) == id);
  REQUIRE(Id128FromProtoBytes("short").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("AddressesRoundTripAndABadHostIsRefused") {
  const ActorAddress address{SomeProc(), 99};
  REQUIRE(*FromProto(ToProto(address)) == address);
  v1::ActorAddress bad = ToProto(address);
  bad.mutable_proc()->set_host("x");
  REQUIRE(FromProto(bad).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("FailureEventRoundTripsEveryField") {
  FailureEvent event = FullEvent();
  event.cause.push_back(FullEvent());
  event.cause[0].reason = "why";
  const v1::FailureEvent proto = ToProto(event);
  // A field added to the message must be added to the converter and to this test.
  REQUIRE(v1::FailureEvent::descriptor()->field_count() == 16);
  std::vector<const google::protobuf::FieldDescriptor*> set;
  proto.GetReflection()->ListFields(proto, &set);
  REQUIRE(set.size() == 16);
  RequireEqual(*FromProto(proto), event);
}

TEST_CASE("FailureEventRefusesUnknownKindAndDeepCauses") {
  v1::FailureEvent event = ToProto(FullEvent());
  event.set_kind(static_cast<v1::FailureKind>(77));
  REQUIRE(FromProto(event).status().code() == absl::StatusCode::kInvalidArgument);
  v1::FailureEvent deep;
  v1::FailureEvent* at = &deep;
  for (int i = 0; i < 20; ++i) at = at->add_cause();
  REQUIRE(FromProto(deep).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("FailureEventWithoutAddressIsAccepted") {
  v1::FailureEvent event;
  event.set_reason("r");
  REQUIRE(FromProto(event)->actor == ActorAddress{});
}

TEST_CASE("EveryStatusCodeKeepsItsNumberAndMessage") {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "m");
    const grpc::Status grpc = ToGrpcStatus(status);
    REQUIRE(static_cast<int>(grpc.error_code()) == code);
    REQUIRE(FromGrpcStatus(grpc) == status);
  }
}

TEST_CASE("ErrorDetailTravelsWithTheStatus") {
  absl::Status status = absl::ResourceExhaustedError("too many");
  REQUIRE(GetErrorDetail(status).status().code() == absl::StatusCode::kNotFound);
  v1::ErrorDetail detail;
  detail.set_limit("procs_per_session_max");
  detail.set_limit_value(4);
  detail.set_asked(9);
  *detail.add_failures() = ToProto(FullEvent());
  SetErrorDetail(detail, &status);
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  REQUIRE(back.message() == "too many");
  REQUIRE(GetErrorDetail(back)->SerializeAsString() == detail.SerializeAsString());
  REQUIRE(GetErrorDetail(FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "m", "\xff\xff")))
              .status()
              .code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace monarch
