#include "client/cpp/ctl/failures.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>

namespace monarch::ctl {
namespace {

constexpr char kFailures[] = R"(
  failures { event {
    kind: FAILURE_KIND_EXCEPTION mesh: "owner" pid: 10 actor { proc { host: "h" proc: 1 } actor: 7 }
    cause {
      kind: FAILURE_KIND_EXITED reason: "its cause is not known yet" mesh: "trainers" rank: 3 pid: 11 actor { proc { host: "h" proc: 2 } actor: 8 }
    }
  } }
  failures {
    event {
      kind: FAILURE_KIND_OUT_OF_MEMORY code: 9 mesh: "p0" rank: 3 pid: 11 actor { proc { host: "h" proc: 2 } }
      reason: "counted" stderr_tail: "last" backtrace: "#0"
    }
    lost_actors { mesh: "trainers" rank: 3 }
    lost_actors { mesh: "helpers" rank: 0 }
  }
  failures { event { kind: FAILURE_KIND_EXITED code: 7 mesh: "p1" rank: 0 pid: 12 actor { proc { host: "h" proc: 3 } } } }
)";

std::vector<Snapshot> Daemon() {
  Snapshot snapshot;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(kFailures, &snapshot.failures));
  return {snapshot};
}

// The pids of what is left.
std::vector<int64_t> Kept(const std::string& target) {
  std::vector<Snapshot> snapshots = Daemon();
  std::vector<int64_t> pids;
  const bool any = KeepFailuresOf(target, &snapshots);
  for (const v1::FailureRecord& record : snapshots[0].failures.failures())
    pids.push_back(record.event().pid());
  CHECK(any == !pids.empty());
  return pids;
}

TEST_CASE("ATargetIsAMeshAMemberOrAPid") {
  using Pids = std::vector<int64_t>;
  CHECK(Kept("") == Pids{10, 11, 12});
  CHECK(Kept("owner") == Pids{10});
  CHECK(Kept("trainers") == Pids{10, 11});
  CHECK(Kept("trainers:3") == Pids{10, 11});
  CHECK(Kept("trainers[3]") == Pids{10, 11});
  CHECK(Kept("trainers:2").empty());
  CHECK(Kept("trainers[3").empty());
  CHECK(Kept("helpers") == Pids{11});
  CHECK(Kept("11") == Pids{10, 11});
  CHECK(Kept("12") == Pids{12});
  CHECK(Kept("13").empty());
  CHECK(Kept("p").empty());
}

TEST_CASE("ACauseIsCompletedByWhatWasLearnedOfItsProcess") {
  std::vector<Snapshot> snapshots = Daemon();
  REQUIRE(KeepFailuresOf("owner", &snapshots));
  REQUIRE(snapshots[0].failures.failures_size() == 1);
  const v1::FailureEvent& cause = snapshots[0].failures.failures(0).event().cause(0);
  CHECK(cause.kind() == v1::FAILURE_KIND_OUT_OF_MEMORY);
  CHECK(cause.code() == 9);
  CHECK(cause.mesh() == "trainers");
  CHECK(cause.reason() == "counted");
  CHECK(cause.stderr_tail() == "last");
  CHECK(cause.backtrace() == "#0");
}

TEST_CASE("WithoutFailuresNoneIsFound") {
  std::vector<Snapshot> snapshots(2);
  CHECK_FALSE(KeepFailuresOf("", &snapshots));
}

}  // namespace
}  // namespace monarch::ctl
