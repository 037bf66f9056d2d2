// The real daemon and launcher with small workers.
#include <grpcpp/create_channel.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/limits.h"
#include "daemon/daemon_harness.h"
#include "message/death_board.h"
#include "message/frame.h"
#include "proto/control_token.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

bool Is(const ControlMessage& message, ControlType type, const v1::ProcInfo& proc) {
  return message.type == type && *ProcAddressFromValue(message.body["peer"]) == *FromProto(proc.address());
}

FailureEvent EventOf(const ControlMessage& message) { return *FailureEventFromValue(message.body["event"]); }

std::string FrameTo(const DaemonHarness& harness, const ProcAddress& receiver, const std::string& payload) {
  FrameHeader header;
  header.kind = FrameKind::kPortMessage;
  header.payload_kind = PayloadKind::kRaw;
  header.session = harness.session;
  header.sender = ActorAddress{harness.self, kRootActor};
  header.receiver = ActorAddress{receiver, 5};
  header.sequence = 1;
  header.port_id = 1;
  header.payload_length = payload.size();
  std::string packet(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, absl::MakeSpan(reinterpret_cast<uint8_t*>(packet.data()), packet.size()));
  return packet + payload;
}

}  // namespace

TEST_CASE("SpawnsListsStopsAndLeavesNothing") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  const grpc::Status spawned = harness.Spawn(harness.SpawnOf("1", {"ready", "ready", "stubborn"}), &procs);
  INFO(spawned.error_message());
  REQUIRE(spawned.ok());
  REQUIRE(procs.procs_size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(procs.procs(i).rank() == static_cast<uint32_t>(i));
    CHECK(procs.procs(i).phase() == "ready");
    CHECK(procs.procs(i).pid() > 0);
    CHECK(ProcessExists(static_cast<pid_t>(procs.procs(i).pid())));
  }
  const v1::GetTreeResponse tree = harness.Tree();
  REQUIRE(tree.sessions_size() == 1);
  CHECK(tree.sessions(0).procs_size() == 3);
  CHECK(tree.sessions(0).client_pid() == harness.client->pid());

  v1::StopProcsResponse stopped;
  REQUIRE(harness.Stop(procs, 200, &stopped).ok());
  REQUIRE(stopped.ends_size() == 3);
  for (const v1::FailureEvent& end : stopped.ends()) CHECK(end.kind() == v1::FAILURE_KIND_STOPPED);
  CHECK(stopped.ends(0).reason() == "the test is done with it");
  CHECK(stopped.ends(2).reason() == "the test is done with it; it had to be killed");
  for (const v1::ProcInfo& proc : procs.procs()) {
    INFO(proc.rank() << " " << DescribeProcess(static_cast<pid_t>(proc.pid())));
    CHECK_FALSE(ProcessExists(static_cast<pid_t>(proc.pid())));
  }

  harness.Send(ControlType::kGoodbye, 9, {});
  CHECK(harness.AwaitAnswer(9).type == ControlType::kOk);
  CHECK(harness.daemon->WaitGone());
  struct stat info;
  CHECK(stat(harness.run_dir.c_str(), &info) != 0);
}

TEST_CASE("RepeatedSpawnRequestGetsTheFirstAnswer") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse first;
  v1::SpawnProcsResponse second;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &first).ok());
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &second).ok());
  CHECK(first.SerializeAsString() == second.SerializeAsString());
  CHECK(harness.Spawn(harness.SpawnOf("1", {"ready", "ready"}), &second).error_code() ==
        grpc::StatusCode::ALREADY_EXISTS);
}

TEST_CASE("ARankCanBeStartedAgain") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse first;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready", "ready", "ready"}), &first).ok());
  kill(static_cast<pid_t>(first.procs(1).pid()), SIGKILL);
  v1::SpawnProcsRequest request = harness.SpawnOf("2", {"ready", "ready", "ready"});
  const v1::ProcessSpec spec = request.rank_specs(1);
  request.clear_rank_specs();
  *request.mutable_spec() = spec;
  request.add_ranks(1);
  request.set_incarnation(2);
  v1::SpawnProcsResponse again;
  const grpc::Status spawned = harness.Spawn(request, &again);
  INFO(spawned.error_message());
  REQUIRE(spawned.ok());
  REQUIRE(again.procs_size() == 1);
  CHECK(again.procs(0).rank() == 1);
  CHECK(again.procs(0).rank_label() == first.procs(1).rank_label());
  CHECK(again.procs(0).address().proc() != first.procs(1).address().proc());
  CHECK(again.procs(0).address().incarnation() == 2);
}

TEST_CASE("KilledWorkerIsToldAtOnceAndInDetail") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready", "ready"}), &procs).ok());
  const v1::ProcInfo victim = procs.procs(1);
  kill(static_cast<pid_t>(victim.pid()), SIGKILL);
  const ControlMessage dead =
      harness.Await([&](const ControlMessage& m) { return Is(m, ControlType::kProcDead, victim); });
  REQUIRE(dead.type == ControlType::kProcDead);
  CHECK(EventOf(dead).kind == FailureKind::kSignalled);
  CHECK(EventOf(dead).code == SIGKILL);
  CHECK(EventOf(dead).pid == victim.pid());
  CHECK(EventOf(dead).mesh == "m1");
  CHECK(EventOf(dead).rank_label == victim.rank_label());
  const ControlMessage detail =
      harness.Await([&](const ControlMessage& m) { return Is(m, ControlType::kProcDetail, victim); });
  REQUIRE(detail.type == ControlType::kProcDetail);
  CHECK(EventOf(detail).kind == FailureKind::kSignalled);
  // A later question gets its end from memory.
  harness.Send(ControlType::kConnect, 5, {{"peer", ToValue(*FromProto(victim.address()))}});
  const ControlMessage answer = harness.AwaitAnswer(5);
  REQUIRE(answer.type == ControlType::kUnreachable);
  CHECK(EventOf(answer).code == SIGKILL);
}

TEST_CASE("FailedSpawnNamesTheRankAndLeavesNothing") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  const grpc::Status status = harness.Spawn(harness.SpawnOf("1", {"ready", "exit", "ready"}), &procs);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  INFO(status.error_message());
  CHECK(status.error_message().find("1 of 3") != std::string::npos);
  CHECK(status.error_message().find("worker cannot go on") != std::string::npos);
  const auto detail = GetErrorDetail(FromGrpcStatus(status));
  REQUIRE(detail.ok());
  REQUIRE(detail->failures_size() == 1);
  CHECK(detail->failures(0).kind() == v1::FAILURE_KIND_START_FAILED);
  CHECK(detail->failures(0).rank() == 1);
  CHECK(detail->failures(0).code() == 3);
  CHECK(detail->failures(0).rank_label() != "");
  CHECK(detail->failures(0).stderr_tail().find("worker cannot go on") != std::string::npos);
  CHECK(harness.Tree().sessions(0).procs_size() == 0);
}

TEST_CASE("SpawnErrorsSayPhaseAndStep") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  v1::SpawnProcsRequest late = harness.SpawnOf("1", {"silent", "ready"});
  late.set_phase_timeout_ms(500);
  grpc::Status status = harness.Spawn(late, &procs);
  CHECK(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(GetErrorDetail(FromGrpcStatus(status))->failures(0).phase() == "launched");
  late = harness.SpawnOf("2", {"mute"});
  late.set_phase_timeout_ms(500);
  status = harness.Spawn(late, &procs);
  CHECK(GetErrorDetail(FromGrpcStatus(status))->failures(0).phase() == "connected");
  v1::SpawnProcsRequest missing = harness.SpawnOf("3", {"ready"});
  missing.mutable_rank_specs(0)->set_argv(0, "/no/such/program");
  status = harness.Spawn(missing, &procs);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find("exec") != std::string::npos);
  v1::SpawnProcsRequest empty = harness.SpawnOf("4", {"ready"});
  empty.mutable_rank_specs(0)->clear_argv();
  CHECK(harness.Spawn(empty, &procs).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("LimitIsNamed") {
  DaemonHarness harness({"--procs-per-session-max", "2"});
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  const grpc::Status status = harness.Spawn(harness.SpawnOf("1", {"ready", "ready", "ready"}), &procs);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto detail = GetErrorDetail(FromGrpcStatus(status));
  REQUIRE(detail.ok());
  CHECK(detail->limit() == "procs_per_session_max");
  CHECK(detail->limit_value() == 2);
  CHECK(detail->asked() == 3);
}

TEST_CASE("DeathOfTheClientEndsEverything") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready", "stubborn", "orphan"}), &procs).ok());
  const SystemClock clock;
  const absl::Duration begin = clock.Now();
  harness.client->Signal(SIGKILL);
  CHECK(harness.daemon->WaitGone());
  CHECK(clock.Now() - begin < absl::Seconds(4));
  for (const v1::ProcInfo& proc : procs.procs()) CHECK_FALSE(ProcessExists(static_cast<pid_t>(proc.pid())));
}

TEST_CASE("DeathOfTheLauncherIsToldAndTheNextSpawnWorks") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready", "orphan"}), &procs).ok());
  const auto launcher = static_cast<pid_t>(harness.Tree().sessions(0).launcher_pid());
  REQUIRE(launcher > 0);
  kill(launcher, SIGKILL);
  for (const v1::ProcInfo& proc : procs.procs()) {
    const ControlMessage dead =
        harness.Await([&](const ControlMessage& m) { return Is(m, ControlType::kProcDead, proc); });
    REQUIRE(dead.type == ControlType::kProcDead);
    CHECK(EventOf(dead).kind == FailureKind::kSignalled);
    CHECK(WaitProcessGone(static_cast<pid_t>(proc.pid())));
  }
  v1::SpawnProcsResponse again;
  const grpc::Status status = harness.Spawn(harness.SpawnOf("2", {"ready"}), &again);
  INFO(status.error_message());
  CHECK(status.ok());
}

TEST_CASE("DeathOfAnOwnerStopsWhatItOwned") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse owner;
  v1::SpawnProcsResponse owned;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &owner).ok());
  v1::SpawnProcsRequest request = harness.SpawnOf("2", {"ready"});
  *request.mutable_owner()->mutable_proc() = owner.procs(0).address();
  REQUIRE(harness.Spawn(request, &owned).ok());
  kill(static_cast<pid_t>(owner.procs(0).pid()), SIGKILL);
  const ControlMessage dead =
      harness.Await([&](const ControlMessage& m) { return Is(m, ControlType::kProcDead, owned.procs(0)); });
  REQUIRE(dead.type == ControlType::kProcDead);
  CHECK(EventOf(dead).kind == FailureKind::kStopped);
  CHECK(EventOf(dead).reason.find("owner") != std::string::npos);
}

TEST_CASE("IntroducesOnceAndRelaysFrames") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &procs).ok());
  const ProcAddress peer = *FromProto(procs.procs(0).address());
  harness.Send(ControlType::kConnect, 5, {{"peer", ToValue(peer)}});
  harness.Send(ControlType::kConnect, 6, {{"peer", ToValue(peer)}});
  std::vector<ScopedFd> fds;
  const ControlMessage introduced =
      harness.Await([](const ControlMessage& m) { return m.request == 5; }, &fds);
  REQUIRE(introduced.type == ControlType::kIntroduce);
  CHECK(*introduced.body["mode"].AsString() == "ring");
  CHECK(*introduced.body["side"].AsInt() == 0);
  CHECK(fds.size() == 5);
  CHECK(harness.AwaitAnswer(6).type == ControlType::kOk);

  REQUIRE(*harness.socket.TrySend(FrameTo(harness, peer, "hello")));
  const std::string echoed = harness.AwaitFrame();
  REQUIRE(echoed.size() == kFrameHeaderBytes + 5);
  CHECK(echoed.substr(kFrameHeaderBytes) == "hello");

  ProcAddress nobody = peer;
  nobody.proc += 1000;
  REQUIRE(*harness.socket.TrySend(FrameTo(harness, nobody, "hello")));
  const ControlMessage undelivered =
      harness.Await([](const ControlMessage& m) { return m.type == ControlType::kUndelivered; });
  CHECK(undelivered.body["header"].AsBytes()->size() == kFrameHeaderBytes);
  CHECK(*undelivered.body["code"].AsInt() == static_cast<int>(absl::StatusCode::kUnavailable));
}

TEST_CASE("TheLauncherTellsAFailureToWhoHasARingAndLeavesAStopToTheDaemon") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &procs).ok());
  const v1::ProcInfo& worker = procs.procs(0);
  const ProcAddress peer = *FromProto(worker.address());
  harness.Send(ControlType::kConnect, 5, {{"peer", ToValue(peer)}});
  std::vector<ScopedFd> fds;
  const ControlMessage introduced =
      harness.Await([](const ControlMessage& m) { return m.request == 5; }, &fds);
  REQUIRE(fds.size() == 5);
  const auto who = FailureEventFromValue(introduced.body["who"]);
  REQUIRE(who.ok());
  CHECK(who->mesh == "m1");
  CHECK(who->pid == worker.pid());
  CHECK(who->rank_label == worker.rank_label());
  const auto board = DeathBoardView::Attach(std::move(fds[4]));
  REQUIRE(board.ok());
  CHECK_FALSE(board->EndOf(peer).has_value());
  const auto bit = static_cast<uint32_t>(*introduced.body["local_bit"].AsInt());
  uint64_t marks[kRingBits / 64];
  // The launcher knows of the ring once it has done what the daemon asked for after it.
  v1::SpawnProcsResponse others;
  REQUIRE(harness.Spawn(harness.SpawnOf("2", {"ready"}), &others).ok());
  SECTION("a failure") {
    kill(static_cast<pid_t>(worker.pid()), SIGKILL);
    REQUIRE(
        harness.Await([&](const ControlMessage& m) { return Is(m, ControlType::kProcDead, worker); }).type ==
        ControlType::kProcDead);
    // It comes before the daemon's word.
    CHECK(board->EndOf(peer) == SIGKILL);
    REQUIRE(harness.doorbell().TakePeerDead(marks));
    CHECK(marks[bit / 64] == uint64_t{1} << bit % 64);
  }
  SECTION("a stop") {
    v1::StopProcsResponse stopped;
    REQUIRE(harness.Stop(procs, 200, &stopped).ok());
    CHECK_FALSE(board->EndOf(peer).has_value());
    CHECK_FALSE(harness.doorbell().TakePeerDead(marks));
  }
}

TEST_CASE("WithoutRingsEveryLinkIsRelayed") {
  DaemonHarness harness({"--ring-links-max", "0"});
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &procs).ok());
  harness.Send(ControlType::kConnect, 5, {{"peer", ToValue(*FromProto(procs.procs(0).address()))}});
  std::vector<ScopedFd> fds;
  const ControlMessage introduced =
      harness.Await([](const ControlMessage& m) { return m.request == 5; }, &fds);
  REQUIRE(introduced.type == ControlType::kIntroduce);
  CHECK(*introduced.body["mode"].AsString() == "relay");
  CHECK(fds.size() == 3);
}

TEST_CASE("GarbageClosesOnlyItsConnection") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready", "garbage"}), &procs).ok());
  auto stranger = PacketSocket::Connect(harness.run_dir + "/native.sock");
  REQUIRE(stranger.ok());
  REQUIRE(*stranger->TrySend("MNC1 but not really"));
  REQUIRE(WaitReadable(stranger->fd(), 20000).ok());
  Packet packet;
  CHECK_FALSE(stranger->TryReceive(&packet).ok());
  // Everybody else is as before.
  CHECK(ProcessExists(static_cast<pid_t>(procs.procs(0).pid())));
  REQUIRE(*harness.socket.TrySend(FrameTo(harness, *FromProto(procs.procs(0).address()), "still here")));
  CHECK(harness.AwaitFrame().substr(kFrameHeaderBytes) == "still here");
  v1::SpawnProcsResponse more;
  CHECK(harness.Spawn(harness.SpawnOf("2", {"ready"}), &more).ok());
}

TEST_CASE("OtherProtocolVersionIsRefusedNamingBoth") {
  DaemonHarness harness;
  REQUIRE_FALSE(harness.Hello(7));
  CHECK(harness.refusal.find("protocol 7") != std::string::npos);
  CHECK(harness.refusal.find("protocol 1") != std::string::npos);
}

TEST_CASE("ConnectionFromTheSocketFileMayOnlyList") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &procs).ok());
  const auto channel =
      grpc::CreateChannel("unix:" + harness.run_dir + "/grpc.sock", grpc::InsecureChannelCredentials());
  const auto stub = v1::ProcessService::NewStub(channel);
  {
    grpc::ClientContext context;
    v1::ListProcsResponse list;
    REQUIRE(stub->ListProcs(&context, {}, &list).ok());
    CHECK(list.procs_size() == 1);
  }
  grpc::ClientContext context;
  v1::SpawnProcsResponse none;
  CHECK(stub->SpawnProcs(&context, harness.SpawnOf("2", {"ready"}), &none).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("RequestsWithoutTheTokenOfAProcessMayOnlyList") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  const auto stub = v1::ProcessService::NewStub(harness.Control());
  const auto spawn = [&](const std::function<void(grpc::ClientContext*)>& name) {
    grpc::ClientContext context;
    name(&context);
    v1::SpawnProcsResponse none;
    return stub->SpawnProcs(&context, harness.SpawnOf("1", {"ready"}), &none).error_code();
  };
  CHECK(spawn([](auto*) {}) == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(spawn([](auto* context) { AddControlToken(StartToken(), context); }) ==
        grpc::StatusCode::PERMISSION_DENIED);
  CHECK(spawn([](auto* context) { AddControlToken(StartToken::Random(), context); }) ==
        grpc::StatusCode::PERMISSION_DENIED);
  CHECK(spawn([](auto* context) { context->AddMetadata(kControlTokenKey, "no token"); }) ==
        grpc::StatusCode::PERMISSION_DENIED);
  CHECK(spawn([&](auto* context) { AddControlToken(harness.control_token, context); }) ==
        grpc::StatusCode::OK);
}

TEST_CASE("TooManyControlConnectionsOfOneProcessAreRefused") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  std::vector<ScopedFd> ours;
  const auto open = [&](uint32_t request) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    ours.emplace_back(fds[0]);
    const ScopedFd theirs(fds[1]);
    harness.Send(ControlType::kOpenControl, request, {}, {theirs.get()});
    return harness.AwaitAnswer(request);
  };
  const auto most = static_cast<uint32_t>(Limits().control_connections_per_proc_max);
  for (uint32_t i = 0; i < most; ++i) REQUIRE(open(100 + i).type == ControlType::kOk);
  const ControlMessage refused = open(99);
  CHECK(refused.type == ControlType::kRefused);
  CHECK(refused.body["message"].AsString()->find("control_connections_per_proc_max=") != std::string::npos);
}

TEST_CASE("TermEndsAllSessionsFirst") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &procs).ok());
  harness.daemon->Signal(SIGTERM);
  CHECK(harness.daemon->WaitGone());
  CHECK_FALSE(ProcessExists(static_cast<pid_t>(procs.procs(0).pid())));
}

}  // namespace monarch
