#include "client/cpp/ctl/daemon_query.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/scoped_fd.h"
#include "client/cpp/ctl/exit_code.h"
#include "proto/monarch/v1/admin.grpc.pb.h"

namespace monarch::ctl {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);  // an answer comes; how long it takes is not the question

// A run directory with a daemon's socket in it.
class RunDirectory {
 public:
  RunDirectory() {
    char name[] = "/tmp/ctlXXXXXX";
    place_.directory = mkdtemp(name);
  }
  ~RunDirectory() { std::filesystem::remove_all(place_.directory); }
  const DaemonPlace& place() const { return place_; }

 private:
  DaemonPlace place_;
};

class FakeAdmin : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* out) override {
    out->set_host_name("node-1");
    return grpc::Status::OK;
  }
  grpc::Status GetTree(grpc::ServerContext*, const v1::GetTreeRequest*, v1::GetTreeResponse* out) override {
    out->add_sessions()->set_name("train.py");
    return refuse_tree ? grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not yours") : grpc::Status::OK;
  }
  bool refuse_tree = false;
};

// A daemon that answers.
class FakeDaemon {
 public:
  FakeDaemon() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(directory.place().Socket(), grpc::InsecureServerCredentials());
    builder.RegisterService(&admin);
    server_ = builder.BuildAndStart();
  }
  RunDirectory directory;
  FakeAdmin admin;

 private:
  std::unique_ptr<grpc::Server> server_;
};

// A daemon that was stopped (SIGSTOP): the kernel accepts connections for it, nobody reads them.
class HungDaemon {
 public:
  HungDaemon() : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory.place().directory + "/grpc.sock").c_str(),
                 sizeof address.sun_path - 1);
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener_.get(), 16) == 0);
  }
  RunDirectory directory;

 private:
  ScopedFd listener_;
};

TEST_CASE("QueryDaemons.GivesWhatADaemonSays") {
  FakeDaemon daemon;
  auto snapshots = QueryDaemons({daemon.directory.place()}, {kLong, true});
  REQUIRE(snapshots.size() == 1);
  REQUIRE(snapshots[0].answer.ok());
  CHECK(snapshots[0].status.host_name() == "node-1");
  REQUIRE(snapshots[0].tree.sessions_size() == 1);
  CHECK(ExitCodeFor(snapshots) == kExitOk);

  snapshots = QueryDaemons({daemon.directory.place()}, {kLong, false});
  CHECK(snapshots[0].answer.ok());
  CHECK(snapshots[0].tree.sessions_size() == 0);
}

TEST_CASE("QueryDaemons.ADeadDaemonIsUnavailableAndTheOthersAreShown") {
  FakeDaemon daemon;
  RunDirectory dead;
  const auto snapshots = QueryDaemons({dead.place(), daemon.directory.place()}, {kLong, true});
  REQUIRE(snapshots.size() == 2);
  CHECK(absl::IsUnavailable(snapshots[0].answer));
  CHECK(snapshots[1].answer.ok());
  CHECK(ExitCodeFor(snapshots) == kExitSilent);
}

TEST_CASE("QueryDaemons.AHungDaemonEndsWithTheTimeoutAndTheOthersAreShown") {
  FakeDaemon daemon;
  HungDaemon hung;
  const auto snapshots =
      QueryDaemons({daemon.directory.place(), hung.directory.place()}, {absl::Seconds(2), true});
  REQUIRE(snapshots.size() == 2);
  CHECK(snapshots[0].answer.ok());
  CHECK_FALSE(snapshots[1].answer.ok());
  CHECK(ExitCodeFor(snapshots) == kExitSilent);
}

TEST_CASE("QueryDaemons.ARefusalIsNotSilence") {
  FakeDaemon daemon;
  daemon.admin.refuse_tree = true;
  const auto snapshots = QueryDaemons({daemon.directory.place()}, {kLong, true});
  REQUIRE(snapshots.size() == 1);
  CHECK(absl::IsPermissionDenied(snapshots[0].answer));
  CHECK(snapshots[0].answer.message() == "not yours");
  CHECK(ExitCodeFor(snapshots) == kExitRefused);
}

TEST_CASE("ExitCodeFor.NoDaemonIsNothing") { CHECK(ExitCodeFor({}) == kExitNothing); }

}  // namespace
}  // namespace monarch::ctl
