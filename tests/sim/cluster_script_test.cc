// What seeds of the simulation have found, as scripts.
#include <signal.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/sim/cluster.h"

namespace monarch::sim {
namespace {

// Two hosts, and a client on the first. Threading: confined to the test.
class Script {
 public:
  Script()
      : dir_(mkdtemp(path_)),
        world_(1),
        cluster_(&world_, 2, monarch::Limits(), dir_, [](const std::string&) { return WorkerPlan(); }) {
    client_ = cluster_.StartClient(0, [](Member&) {});
    Run();
  }
  ~Script() { std::filesystem::remove_all(dir_); }

  void Attach() {
    ControlRequest attach;
    attach.what = AttachRequest{"unix:" + cluster_.network().DialPath(0, 1), absl::Seconds(2)};
    cluster_.Ask(client_, std::move(attach), [this](const ControlAnswer& answer) {
      attached_ = answer.status;
      other_ = answer.host.host;
    });
  }
  void Run() { cluster_.RunFor(absl::Seconds(1)); }
  void Spawn(const HostId& host) {
    SpawnRequest request;
    request.request_id = "s";
    request.mesh = "m";
    request.shape = *Shape::Create({"ranks"}, *NDSlice::RowMajor({1}));
    request.hosts = {host};
    request.specs.resize(1);
    request.specs[0].argv = {"sim"};
    ControlRequest ask;
    ask.what = std::move(request);
    cluster_.Ask(client_, std::move(ask), [this](const ControlAnswer& answer) { spawned_ = answer.spawn; });
  }
  Member* Worker() {
    for (const auto& [address, life] : cluster_.ledger().lives()) {
      if (!life.process->is_client()) return life.process;
    }
    return nullptr;
  }

 protected:
  char path_[32] = "/tmp/monarch-sim-XXXXXX";
  const std::string dir_;
  World world_;
  Cluster cluster_;
  Member* client_ = nullptr;
  HostId other_;
  std::optional<absl::Status> attached_;
  std::optional<SpawnResult> spawned_;
};

TEST_CASE_METHOD(Script, "OneThatDiedBeforeItsSpawnWasAnsweredIsNotDeadAgainWhenItsHostIsLost") {
  Attach();
  Run();
  REQUIRE(attached_->ok());
  // The second connection between the two is for requests.
  cluster_.network().HoldAnswers(2);
  Spawn(other_);
  Run();
  Member* worker = Worker();
  REQUIRE(worker != nullptr);
  worker->Die(0, SIGKILL);
  Run();
  CHECK(client_->notices().at(worker->address()).dead == 1);
  CHECK_FALSE(spawned_);
  cluster_.network().Release(2);
  Run();
  REQUIRE(spawned_);
  CHECK(spawned_->error.status.ok());
  Session* session = cluster_.daemon(0)->sessions().Find(client_->session());
  CHECK(session->RemoteProcs().empty());
  cluster_.network().Cut(0, 1);
  Run();
  CHECK(client_->notices().at(worker->address()).dead == 1);
}

TEST_CASE_METHOD(Script, "ASessionMayEndInTheMomentInWhichAHostIsGivenUp") {
  cluster_.network().Partition(0, 1);
  Attach();
  cluster_.RunFor(absl::Milliseconds(100));
  // All of it is seen in one turn.
  cluster_.Freeze(0, absl::Seconds(3));
  client_->Goodbye();
  cluster_.RunFor(absl::Seconds(10));
  CHECK_FALSE(client_->alive());
  cluster_.network().Heal(0, 1);
  Run();
  cluster_.CheckEmpty();
  CHECK(world_.violations().empty());
}

TEST_CASE_METHOD(Script, "AHostMayBeLostWhileItIsAttached") {
  // At each of its stages.
  for (int moment = 0; moment < 60; ++moment) {
    attached_.reset();
    Attach();
    cluster_.RunFor(moment * absl::Microseconds(200));
    cluster_.network().Cut(0, 1);
    cluster_.RunFor(absl::Seconds(3));
    CHECK(attached_);
    cluster_.network().Cut(0, 1);
    Run();
  }
  CHECK(client_->alive());
}

TEST_CASE_METHOD(Script, "AHostMayBeLostInTheMomentInWhichItIsGivenUp") {
  Attach();
  // Its first connection is made, its second is not.
  while (cluster_.network().connections() < 2) cluster_.RunFor(absl::Microseconds(10));
  REQUIRE_FALSE(attached_);
  cluster_.Freeze(0, absl::Seconds(3));
  cluster_.network().Cut(0, 1);
  cluster_.RunFor(absl::Seconds(10));
  REQUIRE(attached_);
  CHECK_FALSE(attached_->ok());
}

}  // namespace
}  // namespace monarch::sim
