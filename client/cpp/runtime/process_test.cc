#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <sstream>
#include <string>

#include "client/cpp/runtime/handshake.h"
#include "client/cpp/runtime/runtime_fixture.h"
#include "message/control_message.h"

namespace monarch {
namespace {

// A worker in a process of its own, between the test's daemon and a launcher that the test plays.
class WorkerProcess {
 public:
  explicit WorkerProcess(FakeDaemon& daemon) {
    PacketSocket to_daemon = daemon.NewProcess();
    auto pair = PacketSocket::Pair();
    REQUIRE(pair.ok());
    launcher_ = std::move(pair->first);
    // Out of the way of 3 and 4, where they go.
    const ScopedFd daemon_fd(fcntl(to_daemon.fd(), F_DUPFD_CLOEXEC, 10));
    const ScopedFd launcher_fd(fcntl(pair->second.fd(), F_DUPFD_CLOEXEC, 10));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, daemon_fd.get(), 3);
    posix_spawn_file_actions_adddup2(&actions, launcher_fd.get(), 4);
    char path[] = "client/cpp/runtime/test_worker";
    char* argv[] = {path, nullptr};
    REQUIRE(posix_spawn(&pid_, path, &actions, nullptr, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    Value::Map boot = {{"session", ToValue(daemon.session())},
                       {"token", ToValue(StartToken::Random())},
                       {"boot", Value::Bytes{"boot bytes"}}};
    REQUIRE(SendPacket(&launcher_, {ControlType::kBoot, 0, std::move(boot)}, {}, kTestTimeout).ok());
    auto packet = ReceivePacket(&launcher_, kTestTimeout);
    REQUIRE(packet.ok());
    const auto lifeline = DecodeControl(packet->bytes);
    REQUIRE(lifeline.ok());
    REQUIRE(lifeline->type == ControlType::kLifeline);
    REQUIRE(packet->fds.size() == 1);
    REQUIRE(
        SendPacket(&launcher_, {ControlType::kOk, lifeline->request, Value::Map{}}, {}, kTestTimeout).ok());
  }
  ~WorkerProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int AwaitExit() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  void EndLauncher() { launcher_.ReleaseFd().reset(); }

 private:
  PacketSocket launcher_;
  pid_t pid_ = 0;
};

ActorAddress Create(Runtime& client, const ProcAddress& proc) {
  const uint64_t id = client.NextActorId();
  const std::string meta = *EncodeValue(
      Value::Map{{"actor", id}, {"rank", 0}, {"owner", ToValue(ActorAddress{client.self(), kRootActor})}});
  const CallTarget agent = {{proc, kAgentActor}, 0};
  const auto call = client.OpenCall(kRootActor, 1);
  REQUIRE(client.Send(kRootActor, FrameKind::kCreate, {&agent, 1}, {PayloadKind::kNone, meta, {}}, call.get())
              .ok());
  const auto answer = Next(client, *call);
  REQUIRE(answer.ok());
  REQUIRE(answer->header.kind == FrameKind::kReply);
  return {proc, id};
}

struct Counts {
  uint64_t wakes = 0;
  uint64_t bells = 0;
};

Counts CountsOf(Runtime& client, const ActorAddress& actor) {
  const auto answer = CallOne(client, actor, "counts");
  REQUIRE(answer.ok());
  Counts counts;
  std::istringstream(TextOf(*answer)) >> counts.wakes >> counts.bells;
  return counts;
}

// The second process of the daemon; the first is the client.
ProcAddress WorkerOf(const Runtime& client) { return {client.self().host, 2, 1}; }

TEST_CASE("a call costs at most one wake-up each way, and no bell") {
  Cluster cluster(false);
  Runtime& client = cluster.Add();
  WorkerProcess worker(cluster.daemon);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kReady, 1));
  const ActorAddress actor = Create(client, WorkerOf(client));
  for (int i = 0; i < 20; ++i) REQUIRE(CallOne(client, actor, "warm").ok());
  const Counts there = CountsOf(client, actor);
  const Runtime::Stats here = client.stats();
  constexpr uint64_t kCalls = 500;
  for (uint64_t i = 0; i < kCalls; ++i) REQUIRE(CallOne(client, actor, std::string(1'000, 'x')).ok());
  const Runtime::Stats here_after = client.stats();
  const Counts there_after = CountsOf(client, actor);
  // The worker's counts include one answer to the question itself.
  CHECK(here_after.futex_wakes - here.futex_wakes <= kCalls);
  CHECK(here_after.futex_waits - here.futex_waits <= kCalls + 5);
  CHECK(there_after.wakes - there.wakes <= kCalls + 1);
  CHECK(here_after.bell_writes == here.bell_writes);
  CHECK(there_after.bells == there.bells);
}

TEST_CASE("a worker stops when the daemon says so") {
  Cluster cluster(GENERATE(false, true));
  Runtime& client = cluster.Add();
  WorkerProcess worker(cluster.daemon);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kReady, 1));
  cluster.daemon.Stop(WorkerOf(client), "boot bytes", 1'000);
  CHECK(worker.AwaitExit() == 0);
}

TEST_CASE("a worker stops when its launcher or its daemon is gone") {
  Cluster cluster(false);
  Runtime& client = cluster.Add();
  static_cast<void>(client);
  WorkerProcess worker(cluster.daemon);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kReady, 1));
  if (GENERATE(false, true)) {
    worker.EndLauncher();
  } else {
    cluster.daemon.End();
  }
  const int status = worker.AwaitExit();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
}

TEST_CASE("a killed worker's pending call fails when the daemon tells") {
  Cluster cluster(GENERATE(false, true));
  Runtime& client = cluster.Add();
  WorkerProcess worker(cluster.daemon);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kReady, 1));
  const ActorAddress actor = Create(client, WorkerOf(client));
  const auto echo = CallOne(client, actor, std::string(20'000, 'e'));
  REQUIRE(echo.ok());
  CHECK(TextOf(*echo).size() == 20'000);
  const auto call = client.OpenCall(kRootActor, 1);
  const CallTarget target = {actor, 0};
  REQUIRE(client.Send(kRootActor, FrameKind::kCall, {&target, 1}, OnePart("die"), call.get()).ok());
  CHECK(WTERMSIG(worker.AwaitExit()) == SIGKILL);
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = SIGKILL;
  cluster.daemon.Kill(actor.proc, event);
  const auto failure = Next(client, *call);
  REQUIRE(failure.ok());
  CHECK(EventOf(*failure).code == SIGKILL);
}

}  // namespace
}  // namespace monarch
