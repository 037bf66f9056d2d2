#include "daemon/spawner.h"

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

namespace monarch {
namespace {

const HostId kHost = HostId::Random();
const absl::Duration kStart = absl::Seconds(100);
constexpr uint64_t kFirst = 1000;

// Numbers the processes from kFirst on, and starts none.
class Host : public Spawner::Host {
 public:
  absl::StatusOr<ProcDescription> StartProc(const SpawnRequest& request, size_t index) override {
    ProcDescription proc;
    proc.address = {kHost, kFirst + index, request.incarnation};
    return proc;
  }
  void KillProc(uint64_t proc) override { killed.push_back(proc); }
  void OnSpawned(const SpawnRequest& /*request*/, const std::vector<ProcDescription>& procs) override {
    spawned = procs;
  }

  std::vector<uint64_t> killed;
  std::vector<ProcDescription> spawned;
};

ProcRecord RecordOf(uint64_t proc, size_t index) {
  ProcRecord record;
  record.description.address = {kHost, proc, 1};
  record.spawn_id = "s1";
  record.spawn_index = index;
  return record;
}

SpawnRequest Two() {
  SpawnRequest request;
  request.request_id = "s1";
  request.mesh = "workers";
  request.shape = *Shape::Create({"gpus"}, *NDSlice::RowMajor({2}));
  return request;
}

}  // namespace

TEST_CASE("TheEndOfAnAttemptThatARestartCutOffIsNotThatOfItsRepetition") {
  Host host;
  Spawner spawner(&host, absl::Seconds(30));
  std::optional<SpawnResult> result;
  spawner.Spawn(Two(), kStart, [&](const SpawnResult& given) { result = given; });
  FailureEvent killed;
  killed.kind = FailureKind::kStopped;
  killed.reason = "monarchd restarted during its spawn";
  const ProcRecord old = RecordOf(7, 1);
  spawner.OnDied(old, killed, kStart);
  spawner.OnGone(old, killed, kStart);
  spawner.OnReady(old, kStart);
  CHECK(host.killed.empty());
  for (size_t i = 0; i < 2; ++i) {
    const ProcRecord record = RecordOf(kFirst + i, i);
    spawner.OnLaunched(record, kStart);
    spawner.OnConnected(record, kStart);
    CHECK_FALSE(result);
    spawner.OnReady(record, kStart);
  }
  REQUIRE(result);
  CHECK(result->error.status.ok());
  CHECK(host.spawned.size() == 2);
}

TEST_CASE("ARankThatDiesEndsTheSpawn") {
  Host host;
  Spawner spawner(&host, absl::Seconds(30));
  std::optional<SpawnResult> result;
  spawner.Spawn(Two(), kStart, [&](const SpawnResult& given) { result = given; });
  FailureEvent exited;
  exited.kind = FailureKind::kExited;
  exited.code = 3;
  spawner.OnGone(RecordOf(kFirst + 1, 1), exited, kStart);
  CHECK(host.killed == std::vector<uint64_t>{kFirst});
  FailureEvent stopped;
  stopped.kind = FailureKind::kStopped;
  spawner.OnGone(RecordOf(kFirst, 0), stopped, kStart);
  REQUIRE(result);
  REQUIRE(result->error.failures.size() == 1);
  CHECK(result->error.failures[0].rank == 1);
  CHECK(result->error.failures[0].code == 3);
}

}  // namespace monarch
