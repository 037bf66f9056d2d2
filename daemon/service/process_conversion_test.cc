#include "daemon/service/process_conversion.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/limits.h"

namespace monarch {
namespace {

v1::SpawnProcsRequest Request() {
  v1::SpawnProcsRequest request;
  request.set_request_id("id");
  request.mutable_spec()->add_argv("program");
  return request;
}

TEST_CASE("SpawnTakesBytesThatAreNoText") {
  v1::SpawnProcsRequest request = Request();
  request.mutable_spec()->add_argv("\xff");
  request.mutable_spec()->add_env("LATIN=\xe4");
  request.mutable_spec()->set_cwd("/\xf6");
  v1::SpawnProcsRequest travelled;
  REQUIRE(travelled.ParseFromString(request.SerializeAsString()));
  const absl::StatusOr<SpawnRequest> parsed = FromProto(travelled, Limits());
  REQUIRE(parsed.ok());
  CHECK(parsed->specs[0].argv[1] == "\xff");
  CHECK(parsed->specs[0].env[0] == "LATIN=\xe4");
  CHECK(parsed->specs[0].cwd == "/\xf6");
}

TEST_CASE("SpawnNamesTheLimitOfALaunch") {
  v1::SpawnProcsRequest request = Request();
  request.mutable_spec()->add_env("LARGE=" + std::string(3 << 20, 'x'));
  CHECK(FromProto(request, Limits()).ok());
  request.mutable_spec()->add_env("MORE=" + std::string(1 << 20, 'x'));
  const absl::Status status = FromProto(request, Limits()).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(std::string(status.message()).find("launch_bytes_max=3932160") != std::string::npos);
}

TEST_CASE("SpawnTakesATagOfLettersAndDigits") {
  v1::SpawnProcsRequest request = Request();
  request.mutable_spec()->set_output_tag("mesh1");
  const absl::StatusOr<SpawnRequest> parsed = FromProto(request, Limits());
  REQUIRE(parsed.ok());
  CHECK(parsed->specs[0].output_tag == "mesh1");
  for (const std::string& bad : {std::string("a b"), std::string("a\n"), std::string(33, 'a')}) {
    request.mutable_spec()->set_output_tag(bad);
    CHECK(absl::IsInvalidArgument(FromProto(request, Limits()).status()));
  }
}

TEST_CASE("SpawnLimitsMemoryAndProcessesOfAWorker") {
  v1::SpawnProcsRequest request = Request();
  request.mutable_spec()->set_memory_bytes_max(1 << 20);
  request.mutable_spec()->set_pids_max(30);
  const absl::StatusOr<SpawnRequest> parsed = FromProto(request, Limits());
  REQUIRE(parsed.ok());
  CHECK(parsed->specs[0].memory_bytes_max == 1 << 20);
  CHECK(parsed->specs[0].pids_max == 30);
  CHECK(ToProto(*parsed).spec().memory_bytes_max() == 1 << 20);
  CHECK(ToProto(*parsed).spec().pids_max() == 30);
  request.mutable_spec()->set_pids_max(-1);
  CHECK(absl::IsInvalidArgument(FromProto(request, Limits()).status()));
}

TEST_CASE("SpawnOfSomeRanksHasAHostForEachOfThem") {
  v1::SpawnProcsRequest request = Request();
  request.add_labels("gpus");
  request.add_sizes(4);
  request.add_ranks(1);
  request.add_ranks(3);
  request.set_incarnation(5);
  for (int i = 0; i < 2; ++i) request.add_hosts(std::string(16, static_cast<char>('a' + i)));
  const absl::StatusOr<SpawnRequest> parsed = FromProto(request, Limits());
  REQUIRE(parsed.ok());
  CHECK(parsed->count() == 2);
  CHECK(parsed->RankOf(1) == 3);
  CHECK(parsed->incarnation == 5);
  CHECK(ToProto(*parsed).incarnation() == 5);
  request.add_hosts(std::string(16, 'c'));
  CHECK(absl::IsInvalidArgument(FromProto(request, Limits()).status()));
}

}  // namespace
}  // namespace monarch
