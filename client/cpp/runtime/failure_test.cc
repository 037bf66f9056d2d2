#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "client/cpp/runtime/failure_detail.h"
#include "client/cpp/runtime/handshake.h"
#include "client/cpp/runtime/runtime_fixture.h"
#include "client/cpp/runtime/start_on.h"
#include "message/control_message.h"
#include "message/ring.h"

namespace monarch {
namespace {

void Ignore(const Message&) {}

FailureEvent Signalled() {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = 9;
  return event;
}

std::shared_ptr<Inbox> StartCall(Runtime& from, const std::vector<CallTarget>& targets) {
  const OnePart payload("x");
  auto call = from.OpenCall(kRootActor, targets.size());
  CHECK(from.Send(kRootActor, FrameKind::kCall, targets, payload, call.get()).ok());
  return call;
}

TEST_CASE("a death fails exactly the calls that waited for it") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  Runtime& c = cluster.Add();
  TestActor silent(b, b.NextActorId(), Ignore);
  TestActor answers(c, c.NextActorId(), [&](const Message& message) {
    MONARCH_CHECK(c.Reply(message, FrameKind::kReply, {}).ok());
  });
  const auto call = StartCall(a, {{silent.address(), 0}, {answers.address(), 1}});
  const auto reply = Next(a, *call);
  REQUIRE(reply.ok());
  CHECK(reply->header.rank == 1);
  cluster.daemon.Kill(b.self(), Signalled());
  const auto failure = Next(a, *call);
  REQUIRE(failure.ok());
  CHECK(failure->header.kind == FrameKind::kFailure);
  CHECK(failure->header.rank == 0);
  CHECK(EventOf(*failure).kind == FailureKind::kSignalled);
  CHECK(EventOf(*failure).actor == silent.address());
  CHECK(call->finished());

  // Later ones at once, and the detail that comes afterwards.
  FailureEvent more = Signalled();
  more.stderr_tail = "last words";
  cluster.daemon.Detail(b.self(), more);
  REQUIRE(Eventually(
      [&] { return a.DeathOf(b.self()).ok() && a.DeathOf(b.self())->stderr_tail == "last words"; }));
  const auto late = StartCall(a, {{silent.address(), 7}});
  const auto at_once = Next(a, *late);
  REQUIRE(at_once.ok());
  CHECK(at_once->header.rank == 7);
  CHECK(EventOf(*at_once).stderr_tail == "last words");
  CHECK(absl::IsNotFound(a.DeathOf(c.self()).status()));
}

TEST_CASE("an event is completed by what comes after the death, its causes too") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  FailureEvent owner;
  owner.kind = FailureKind::kException;
  owner.reason = "not handled";
  owner.cause = {Signalled()};
  owner.cause[0].actor = {b.self(), 5};
  owner.cause[0].mesh = "mine";
  // Of a process that is not known to be dead nothing is waited for.
  CHECK(WithDetail(&a, owner, absl::InfiniteDuration()).cause[0].reason == Signalled().reason);
  cluster.daemon.Kill(b.self(), Signalled());
  REQUIRE(Eventually([&] { return a.DeathOf(b.self()).ok(); }));
  CHECK(WithDetail(&a, owner, absl::Milliseconds(1)).cause[0].kind == FailureKind::kSignalled);
  std::thread later([&] {
    FailureEvent more = Signalled();
    more.kind = FailureKind::kOutOfMemory;
    more.reason = "counted";
    more.stderr_tail = "last words";
    more.backtrace = "#0";
    more.mesh = "of the process";
    cluster.daemon.Detail(b.self(), more);
  });
  const FailureEvent full = WithDetail(&a, owner, kTestTimeout);
  later.join();
  CHECK(full.reason == "not handled");
  const FailureEvent& cause = full.cause[0];
  CHECK(cause.kind == FailureKind::kOutOfMemory);
  CHECK(cause.reason == "counted");
  CHECK(cause.stderr_tail == "last words");
  CHECK(cause.backtrace == "#0");
  CHECK(cause.mesh == "mine");
  CHECK(cause.actor.actor == 5);
}

TEST_CASE("the daemon gets a failure in one packet, whatever it says") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  TestActor failing(a, a.NextActorId(), [](const Message&) {});
  FailureEvent event;
  event.kind = FailureKind::kException;
  std::string signs;
  for (int i = 0; i < 100 << 10; ++i) signs += "é";
  // Cuts at even numbers of bytes, from either end, go through a sign.
  event.reason = "r" + signs;
  event.traceback = signs + "last line";
  event.cause = {FailureEvent(event)};
  event.cause[0].backtrace = "#0" + std::string(200 << 10, 'b');
  a.EndActor(failing.address().actor, event);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kActorDown, 1));
  const auto kept = FailureEventFromValue(cluster.daemon.Received(ControlType::kActorDown)[0].body["event"]);
  REQUIRE(kept.ok());
  CHECK(kept->traceback.size() > 1000);
  CHECK(kept->traceback.substr(kept->traceback.size() - 9) == "last line");
  REQUIRE(kept->cause.size() == 1);
  CHECK(kept->cause[0].backtrace.substr(0, 3) == "#0b");
}

TEST_CASE("the launcher's word on the board fails what is pending, without the daemon") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  std::atomic<bool> called{false};
  TestActor silent(b, b.NextActorId(), [&](const Message&) { called = true; });
  auto shape = Shape::Create({"gpus"}, *NDSlice::RowMajor({1}));
  a.AddOwnedMesh({kRootActor, "silent", "m.S", silent.address().actor, {b.self()}, *shape});
  const auto port = a.OpenPort(kRootActor);
  const auto pending = StartCall(a, {{silent.address(), 3}});
  REQUIRE(Eventually([&] { return called.load(); }));
  const OnePart text("last words");
  REQUIRE(
      b.SendToPort(kRootActor, {a.self(), kRootActor}, port->id(), 0, FrameKind::kPortMessage, text).ok());
  const auto [status, kind, code] = GENERATE(std::tuple{SIGKILL, FailureKind::kSignalled, SIGKILL},
                                             std::tuple{7 << 8, FailureKind::kExited, 7});
  cluster.daemon.TellOnBoard(b.self(), status);
  const auto failure = Next(a, *pending);
  REQUIRE(failure.ok());
  CHECK(failure->header.rank == 3);
  const FailureEvent event = EventOf(*failure);
  CHECK(event.kind == kind);
  CHECK(event.code == code);
  CHECK(event.actor == silent.address());
  CHECK(event.mesh == "silent");
  CHECK(event.host_name == "test-host");
  CHECK(event.unix_ms > 0);
  CHECK(port->size() == 1);
  const auto report = Next(a, *a.root_mailbox());
  REQUIRE(report.ok());
  CHECK(EventOf(*report).kind == kind);

  // The daemon's news of the same are late facts: nobody is told twice.
  FailureEvent more = Signalled();
  cluster.daemon.Kill(b.self(), more);
  more.stderr_tail = "last words";
  cluster.daemon.Detail(b.self(), more);
  REQUIRE(Eventually([&] { return a.DeathOf(b.self())->stderr_tail == "last words"; }));
  CHECK(a.root_mailbox()->empty());
}

TEST_CASE("a death on the board from before the introduction is found at it") {
  Cluster cluster(FakeDaemon::Options{.relay = false, .refuse = "", .silent = false, .introduce = false});
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor silent(b, b.NextActorId(), Ignore);
  const auto pending = StartCall(a, {{silent.address(), 0}});
  cluster.daemon.TellOnBoard(b.self(), SIGSEGV);
  cluster.daemon.Introduce();
  const auto failure = Next(a, *pending);
  REQUIRE(failure.ok());
  CHECK(EventOf(*failure).code == SIGSEGV);
}

TEST_CASE("a process that marks another as dead harms nobody") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  std::atomic<bool> answer{false};
  TestActor late(b, b.NextActorId(), [&](const Message& message) {
    MONARCH_CHECK(Eventually([&] { return answer.load(); }));
    MONARCH_CHECK(b.Reply(message, FrameKind::kReply, {}).ok());
  });
  const auto pending = StartCall(a, {{late.address(), 0}});
  cluster.daemon.TellOnBoard(b.self(), -1);
  cluster.daemon.TellOnBoard({b.self().host, b.self().proc, b.self().incarnation + 1}, SIGKILL);
  CHECK(absl::IsDeadlineExceeded(a.Wait(*pending, absl::Milliseconds(50))));
  CHECK_FALSE(a.DeathOf(b.self()).ok());
  answer = true;
  const auto reply = Next(a, *pending);
  REQUIRE(reply.ok());
  CHECK(reply->header.kind == FrameKind::kReply);
}

TEST_CASE("what the dead said before comes first, and blocks lent to it come back") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  std::atomic<int> got{0};
  std::vector<Message> kept;
  TestActor keeps(b, b.NextActorId(), [&](const Message& message) {
    kept.push_back(message);
    ++got;
  });
  const CallTarget target = {keeps.address(), 0};
  const OnePart payload(std::string(100'000, 'k'));
  for (int i = 0; i < 3; ++i)
    REQUIRE(a.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, nullptr).ok());
  REQUIRE(Eventually([&] { return got == 3; }));
  CHECK(a.stats().segment_bytes >= 300'000);

  const auto port = a.OpenPort(kRootActor);
  for (int i = 0; i < 20; ++i) {
    const OnePart text(std::to_string(i));
    REQUIRE(
        b.SendToPort(kRootActor, {a.self(), kRootActor}, port->id(), 0, FrameKind::kPortMessage, text).ok());
  }
  cluster.daemon.Kill(b.self(), Signalled());
  REQUIRE(Eventually([&] { return a.DeathOf(b.self()).ok(); }));
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0; }));
  REQUIRE(Eventually([&] { return port->size() == 20; }));
  CHECK(TextOf(kept.back()).size() == 100'000);  // A mapping keeps the bytes.
}

TEST_CASE("owners hear of each rank of their meshes, once") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  Runtime& c = cluster.Add();
  auto slice = NDSlice::RowMajor({2});
  auto shape = Shape::Create({"gpus"}, *slice);
  a.AddOwnedMesh({kRootActor, "procs", "", 0, {b.self(), c.self()}, *shape});
  a.AddOwnedMesh({kRootActor, "trainers", "m.T", 55, {c.self(), b.self()}, *shape});
  const auto other = a.AddActor(60, {});
  REQUIRE(other.ok());
  a.AddOwnedMesh({60, "procs", "", 0, {b.self()}, Shape()});

  const std::shared_ptr<Inbox> root = a.root_mailbox();
  cluster.daemon.Kill(b.self(), Signalled());
  const auto first = Next(a, *root);
  REQUIRE(first.ok());
  CHECK(first->header.kind == FrameKind::kActorFailed);
  const FailureEvent event = EventOf(*first);
  CHECK(event.mesh == "trainers");
  CHECK(event.actor_class == "m.T");
  CHECK(event.rank == 1);
  CHECK(event.rank_label == "{'gpus': 1/2}");
  CHECK(event.actor == ActorAddress{b.self(), 55});
  const auto procs_only = Next(a, **other);
  REQUIRE(procs_only.ok());
  CHECK(EventOf(*procs_only).mesh == "procs");

  // Status 0 is a stop: nobody is told.
  FailureEvent stop;
  stop.kind = FailureKind::kStopped;
  cluster.daemon.Kill(c.self(), stop);
  REQUIRE(Eventually([&] { return a.DeathOf(c.self()).ok(); }));
  CHECK(root->empty());
  // Dead already when the mesh is added.
  a.AddOwnedMesh({kRootActor, "late", "m.L", 56, {b.self()}, Shape()});
  const auto late = Next(a, *root);
  REQUIRE(late.ok());
  CHECK(EventOf(*late).mesh == "late");
  a.RemoveOwnedMesh(kRootActor, 56, "late");
}

TEST_CASE("members that were made again are reported by their own ids") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  Runtime& c = cluster.Add();
  auto shape = Shape::Create({"gpus"}, *NDSlice::RowMajor({2}));
  a.AddOwnedMesh({kRootActor, "trainers", "m.T", 55, {b.self(), c.self()}, *shape, {55, 78}});
  cluster.daemon.Kill(c.self(), Signalled());
  const auto told = Next(a, *a.root_mailbox());
  REQUIRE(told.ok());
  CHECK(EventOf(*told).rank == 1);
  CHECK(EventOf(*told).actor == ActorAddress{c.self(), 78});
}

TEST_CASE("actors whose owner died are asked to stop") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  Runtime::ActorInfo info;
  info.owner = {b.self(), kRootActor};
  const auto mailbox = a.AddActor(70, info);
  REQUIRE(mailbox.ok());
  cluster.daemon.Kill(b.self(), Signalled());
  const auto message = Next(a, **mailbox);
  REQUIRE(message.ok());
  CHECK(message->header.kind == FrameKind::kStopActor);
  CHECK(*(*DecodeValue(message->view.meta))["reason"].string() == "owner died");
}

TEST_CASE("the end of an actor answers what is queued and what comes later, and its owner hears of it") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  Runtime::ActorInfo info;
  info.mesh = "m";
  info.actor_class = "m.C";
  info.owner = {a.self(), kRootActor};
  const auto mailbox = b.AddActor(80, info);
  REQUIRE(mailbox.ok());
  const ActorAddress address = {b.self(), 80};
  const auto queued = StartCall(a, {{address, 3}});
  const CallTarget target = {address, 4};
  const auto stop = a.OpenCall(kRootActor, 1);
  REQUIRE(a.Send(kRootActor, FrameKind::kStopActor, {&target, 1}, {}, stop.get()).ok());
  REQUIRE(Eventually([&] { return (*mailbox)->size() == 2; }));
  FailureEvent event;
  event.kind = FailureKind::kException;
  event.reason = "ValueError: no";
  event.traceback = std::string(20'000, 't');
  b.EndActor(80, event);
  CHECK((*mailbox)->finished());
  const auto failed = Next(a, *queued);
  REQUIRE(failed.ok());
  CHECK(EventOf(*failed).reason == "ValueError: no");
  CHECK(EventOf(*failed).mesh == "m");
  CHECK(EventOf(*failed).traceback.size() == 20'000);
  const auto stopped = Next(a, *stop);
  REQUIRE(stopped.ok());
  CHECK(stopped->header.kind == FrameKind::kReply);
  const auto told = Next(a, *a.root_mailbox());
  REQUIRE(told.ok());
  CHECK(EventOf(*told).actor == address);
  const auto late = CallOne(a, address, "late");
  REQUIRE(late.ok());
  CHECK(EventOf(*late).kind == FailureKind::kException);
  const auto unknown = CallOne(a, {b.self(), 81}, "x");
  REQUIRE(unknown.ok());
  CHECK(EventOf(*unknown).reason == "no such actor");
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kActorDown, 1));
}

TEST_CASE("a process that never was is unreachable") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  const auto answer = CallOne(a, {{a.self().host, 999, 1}, 5}, "x");
  REQUIRE(answer.ok());
  CHECK(EventOf(*answer).kind == FailureKind::kUnreachable);
}

TEST_CASE("when monarchd ends, every call of a client does") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor silent(b, b.NextActorId(), Ignore);
  const auto pending = StartCall(a, {{silent.address(), 0}});
  cluster.daemon.End();
  const auto answer = Next(a, *pending);
  REQUIRE(answer.ok());
  CHECK(EventOf(*answer).kind == FailureKind::kUnreachable);
  CHECK(EventOf(*answer).reason == "monarchd ended");
  const auto late = CallOne(a, silent.address(), "x");
  REQUIRE(late.ok());
  CHECK(EventOf(*late).reason == "monarchd ended");
  CHECK_FALSE(a.OpenControl().ok());
  CHECK(a.Goodbye(kTestTimeout).ok());
}

TEST_CASE("a daemon that refuses or is silent is an error that names the versions") {
  FakeDaemon refuses(
      FakeDaemon::Options{.relay = false, .refuse = "protocol 2 wanted", .silent = false, .introduce = true});
  const auto refused = StartClientOn(refuses.NewProcess(), {}, Hello(), absl::Seconds(5), Limits());
  REQUIRE(absl::IsFailedPrecondition(refused.status()));
  CHECK(std::string(refused.status().message()).find("9.9.9") != std::string::npos);
  CHECK(std::string(refused.status().message()).find("protocol 1") != std::string::npos);
  FakeDaemon silent(FakeDaemon::Options{.relay = false, .refuse = "", .silent = true, .introduce = true});
  const auto nothing = StartClientOn(silent.NewProcess(), {}, Hello(), absl::Milliseconds(50), Limits());
  CHECK(absl::IsUnavailable(nothing.status()));
}

// A process that speaks for itself.
struct RawPeer {
  Connection connection;
  std::unique_ptr<RingLink> link;
  ScopedFd ring;
  std::shared_ptr<Doorbell> doorbell;  // of the other side
  uint32_t peer_bit = 0;
  int side = 0;

  void Join(FakeDaemon& daemon) {
    connection.daemon = daemon.NewProcess();
    connection.pages = *SharedPages::Create(Limits());
    REQUIRE(SayHello(Hello(), absl::Seconds(5), &connection).ok());
  }
  void Meet() {
    auto packet = ReceivePacket(&connection.daemon, kTestTimeout);
    REQUIRE(packet.ok());
    const auto message = DecodeControl(packet->bytes);
    REQUIRE(message->type == ControlType::kIntroduce);
    side = static_cast<int>(*message->body["side"].AsInt());
    peer_bit = static_cast<uint32_t>(*message->body["peer_bit"].AsInt());
    auto other = Doorbell::Attach(std::move(packet->fds[0]), std::move(packet->fds[1]));
    doorbell = std::make_shared<Doorbell>(*std::move(other));
    auto copy = packet->fds[3].Dup();
    ring = *std::move(copy);
    auto made = RingLink::Create(std::move(packet->fds[3]), doorbell, {side, peer_bit});
    REQUIRE(made.ok());
    link = *std::move(made);
  }
};

TEST_CASE("garbage in a ring ends that link and nothing else") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor fine(b, b.NextActorId(), [&](const Message& message) {
    MONARCH_CHECK(b.Reply(message, FrameKind::kReply, {}).ok());
  });
  REQUIRE(CallOne(a, fine.address(), "x").ok());
  RawPeer raw;
  raw.Join(cluster.daemon);
  const auto pending = StartCall(a, {{{raw.connection.self, 9}, 0}});
  raw.Meet();
  auto mapping = Mapping::Map(raw.ring.get(), kRingMemfdBytes);
  REQUIRE(mapping.ok());
  uint8_t* mine = mapping->data() + (raw.side == 0 ? 0 : kRingMemfdBytes / 2);
  SECTION("a record that is no frame") {
    RingProducer producer(mine);
    const std::string junk(300, '\x5a');
    REQUIRE(producer.TryPush({reinterpret_cast<const uint8_t*>(junk.data()), junk.size()}, {}).ok());
  }
  SECTION("an index that is nonsense") {
    reinterpret_cast<std::atomic<uint64_t>*>(mine)->store(UINT64_MAX / 3);
  }
  SECTION("a frame in another's name") {
    FrameHeader header;
    header.kind = FrameKind::kCall;
    header.session = a.session();
    header.sender = {b.self(), 1};
    header.receiver = {a.self(), kRootActor};
    header.sequence = 1;
    header.flags = kFlagFirst;
    REQUIRE(raw.link->TrySend(header, {}).ok());
  }
  raw.doorbell->Ring(raw.peer_bit, kServiceWord, true);
  const auto answer = Next(a, *pending);
  REQUIRE(answer.ok());
  CHECK(EventOf(*answer).kind == FailureKind::kUnreachable);
  CHECK(EventOf(*answer).reason.find("link broken") != std::string::npos);
  CHECK(CallOne(a, fine.address(), "x").ok());
  const auto late = CallOne(a, {raw.connection.self, 9}, "x");
  REQUIRE(late.ok());
  CHECK(EventOf(*late).reason.find("link broken") != std::string::npos);
}

TEST_CASE("a descriptor outside of the segment is refused, its sender told") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  RawPeer raw;
  raw.Join(cluster.daemon);
  const auto pending = StartCall(a, {{{raw.connection.self, 9}, 0}});
  raw.Meet();
  FrameHeader header;
  header.kind = FrameKind::kCall;
  header.session = a.session();
  header.sender = {raw.connection.self, 9};
  header.receiver = {a.self(), kRootActor};
  header.sequence = 1;
  header.port_id = 4;
  header.flags = kFlagFirst | kFlagInSegment;
  header.payload_length = 8192;
  header.segment_offset = uint64_t{1} << 60;
  REQUIRE(raw.link->TrySend(header, {}).ok());
  FrameKind kind = FrameKind::kUnspecified;
  CHECK(Eventually([&] {
    static_cast<void>(raw.link->Receive(1, [&](Frame frame) { kind = frame.header.kind; }));
    return kind == FrameKind::kFailure;
  }));
  // The link lives: a reply is taken.
  header = {};
  header.kind = FrameKind::kReply;
  header.session = a.session();
  header.sender = {raw.connection.self, 9};
  header.receiver = {a.self(), kRootActor};
  header.sequence = 2;
  header.port_id = pending->id();
  REQUIRE(raw.link->TrySend(header, {}).ok());
  const auto answer = Next(a, *pending);
  REQUIRE(answer.ok());
  CHECK(answer->header.kind == FrameKind::kReply);
}

}  // namespace
}  // namespace monarch
