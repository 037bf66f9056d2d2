#include "client/cpp/runtime/runtime.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "client/cpp/runtime/runtime_fixture.h"
#include "message/control_message.h"
#include "message/mesh_restarts.h"

namespace monarch {
namespace {

TestActor::Handler Echo(Runtime& runtime) {
  return [&runtime](const Message& message) {
    const OnePart answer("echo " + TextOf(message));
    MONARCH_CHECK(runtime.Reply(message, FrameKind::kReply, answer).ok());
  };
}

TEST_CASE("a call is answered") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor actor(b, b.NextActorId(), Echo(b));
  for (int i = 0; i < 100; ++i) {
    const auto answer = CallOne(a, actor.address(), std::to_string(i));
    REQUIRE(answer.ok());
    CHECK(answer->header.kind == FrameKind::kReply);
    CHECK(TextOf(*answer) == "echo " + std::to_string(i));
  }
  CHECK(a.stats().ring_links + a.stats().relay_links == 1);
}

TEST_CASE("a call within the process is answered") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  TestActor actor(a, a.NextActorId(), Echo(a));
  const auto answer = CallOne(a, actor.address(), std::string(100'000, 'x'));
  REQUIRE(answer.ok());
  CHECK(TextOf(*answer).size() == 100'005);
  CHECK(a.stats().segment_bytes == 0);
}

TEST_CASE("messages of one sender keep their order, from several threads at once") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  constexpr int kThreads = 4;
  constexpr int kEach = 2'000;
  std::vector<int> next(kThreads, 0);
  std::atomic<int> seen{0};
  std::atomic<int> wrong{0};
  TestActor actor(b, b.NextActorId(), [&](const Message& message) {
    const size_t from = message.header.sender.actor - 100;
    wrong += std::stoi(TextOf(message).substr(0, 8)) != next[from]++;
    ++seen;
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        std::string text = std::to_string(i);
        text.resize(i % 7 == 0 ? 5'000 : 8, ' ');  // Both ways of a payload.
        const OnePart payload(text);
        const CallTarget target = {actor.address(), 0};
        if (!a.Send(100 + t, FrameKind::kCall, {&target, 1}, payload, nullptr).ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(Eventually([&] { return seen == kThreads * kEach; }));
  CHECK(wrong == 0);
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0; }));
}

TEST_CASE("a cast writes its payload once, and the block comes back") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  std::vector<std::unique_ptr<TestActor>> actors;
  std::vector<CallTarget> targets;
  std::atomic<int> shared{0};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Runtime& each = rank == 3 ? a : cluster.Add();
    actors.push_back(std::make_unique<TestActor>(each, 77, [&each, &shared](const Message& message) {
      shared += message.payload->shared();
      const OnePart answer(TextOf(message).substr(0, 3));
      MONARCH_CHECK(each.Reply(message, FrameKind::kReply, answer).ok());
    }));
    targets.push_back({actors.back()->address(), rank});
  }
  const OnePart payload("abc" + std::string(1 << 20, 'z'));
  const auto call = a.OpenCall(kRootActor, targets.size());
  REQUIRE(a.Send(kRootActor, FrameKind::kCall, targets, payload, call.get()).ok());
  CHECK(a.stats().segment_bytes <= (1 << 20) + 4096);
  std::set<uint32_t> ranks;
  while (!call->finished()) {
    const auto answer = Next(a, *call);
    REQUIRE(answer.ok());
    CHECK(TextOf(*answer) == "abc");
    ranks.insert(answer->header.rank);
  }
  CHECK(ranks.size() == 4);
  CHECK(shared == 3);
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0; }));
}

TEST_CASE("large payloads both ways leave nothing behind") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor actor(b, b.NextActorId(), Echo(b));
  for (size_t size : {4'000U, 4'096U, 70'000U, 3'000'000U}) {
    const auto answer = CallOne(a, actor.address(), std::string(size, 'q'));
    REQUIRE(answer.ok());
    CHECK(TextOf(*answer).size() == size + 5);
    // Unicast: the receiver's own.
    if (size > 4'096) CHECK_FALSE(answer->payload->shared());
    answer->view.parts.front()[0] = 'E';
  }
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0 && b.stats().segment_bytes == 0; }));
}

TEST_CASE("a block outlives the runtime that received it") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  absl::StatusOr<Message> answer = absl::UnknownError("");
  {
    TestActor actor(b, b.NextActorId(), Echo(b));
    answer = CallOne(a, actor.address(), std::string(50'000, 'x'));
    REQUIRE(answer.ok());
  }
  cluster.runtimes.clear();
  CHECK(TextOf(*answer).size() == 50'005);
}

TEST_CASE("a message too large for the segment is refused") {
  Cluster cluster(false);
  Limits limits;
  limits.segment_bytes_max = 1 << 20;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add();
  TestActor actor(b, b.NextActorId(), Echo(b));
  CHECK(CallOne(a, actor.address(), std::string(2 << 20, 'x')).status().code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(CallOne(a, actor.address(), "still works").ok());
}

TEST_CASE("frames sent before the introduction arrive after it, in order") {
  Cluster cluster(
      FakeDaemon::Options{.relay = GENERATE(false, true), .refuse = "", .silent = false, .introduce = false});
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  std::vector<std::string> seen;
  std::atomic<size_t> count{0};
  TestActor actor(b, b.NextActorId(), [&](const Message& message) {
    seen.push_back(TextOf(message));
    ++count;
  });
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    sent.push_back(std::to_string(i));
    const OnePart payload(sent.back());
    const CallTarget target = {actor.address(), 0};
    REQUIRE(a.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, nullptr).ok());
  }
  CHECK(count == 0);
  cluster.daemon.Introduce();
  REQUIRE(Eventually([&] { return count == sent.size(); }));
  CHECK(seen == sent);
}

TEST_CASE("two that call each other first at the same time") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor on_a(a, a.NextActorId(), Echo(a));
  TestActor on_b(b, b.NextActorId(), Echo(b));
  std::thread other([&] { MONARCH_CHECK(CallOne(b, on_a.address(), "x").ok()); });
  CHECK(CallOne(a, on_b.address(), "y").ok());
  other.join();
  CHECK(a.stats().ring_links + a.stats().relay_links == 1);
}

TEST_CASE("numbers of pairs are kept as long as both actors are there") {
  for (const bool relay : {false, true}) {
    Cluster cluster(relay);
    Runtime& a = cluster.Add();
    Runtime& b = cluster.Add();
    const auto answer = [](Runtime& runtime) {
      return [&runtime](const Message& m) {
        MONARCH_CHECK(runtime.Reply(m, FrameKind::kReply, OnePart(TextOf(m))).ok());
      };
    };
    const auto call_from = [&](uint64_t caller, const ActorAddress& to) {
      const CallTarget target{to, 0};
      const std::shared_ptr<Inbox> call = a.OpenCall(caller, 1);
      CHECK(a.Send(caller, FrameKind::kCall, {&target, 1}, OnePart("x"), call.get()).ok());
      return Next(a, *call);
    };
    const auto pairs = [&] {
      return a.stats().pairs_to + a.stats().pairs_from + b.stats().pairs_to + b.stats().pairs_from;
    };
    REQUIRE(CallOne(a, TestActor(b, 1000, answer(b)).address(), "x").ok());
    // Of the root and the agents, who stay.
    REQUIRE(Eventually([&] { return pairs() <= 8; }));
    std::vector<ActorAddress> gone;
    for (uint64_t i = 1; i <= 50; ++i) {
      const TestActor callee(b, i * 10, answer(b));
      const TestActor caller(a, i * 10 + 1, answer(a));
      gone.push_back(callee.address());
      REQUIRE(CallOne(a, callee.address(), "x").ok());
      const auto answered = call_from(i * 10 + 1, callee.address());
      REQUIRE(answered.ok());
      CHECK(TextOf(*answered) == "x");
    }
    CHECK(Eventually([&] { return pairs() <= 8; }));
    // Calls that come too late are answered, and leave nothing either.
    for (int round = 0; round < 2; ++round) {
      for (const ActorAddress& actor : gone) {
        const auto late = CallOne(a, actor, "x");
        REQUIRE(late.ok());
        CHECK(late->header.kind == FrameKind::kFailure);
      }
    }
    CHECK(Eventually([&] { return pairs() <= 8; }));
    // The root goes on with whoever is there.
    const TestActor last(b, 2000, answer(b));
    for (int i = 0; i < 3; ++i) CHECK(TextOf(*CallOne(a, last.address(), "y")) == "y");
  }
}

TEST_CASE("a port takes messages until it is closed") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  const auto port = a.OpenPort(kRootActor);
  for (int i = 0; i < 10; ++i) {
    const OnePart payload(std::to_string(i));
    REQUIRE(b.SendToPort(kRootActor, {a.self(), kRootActor}, port->id(), 0, FrameKind::kPortMessage, payload)
                .ok());
  }
  for (int i = 0; i < 10; ++i) {
    const auto message = Next(a, *port);
    REQUIRE(message.ok());
    CHECK(TextOf(*message) == std::to_string(i));
  }
  CHECK_FALSE(port->finished());
  a.CloseInbox(*port);
  CHECK(port->finished());
  CHECK(a.Wait(*port, kTestTimeout).ok());
}

TEST_CASE("spawners of different hosts name different actors, though their proc numbers are the same") {
  Cluster here(false);
  Cluster there(false);
  Runtime& a = here.Add();
  Runtime& b = there.Add();
  REQUIRE(a.self().proc == b.self().proc);
  std::set<uint64_t> ids;
  for (int i = 0; i < 100; ++i) {
    ids.insert(a.NextActorId());
    ids.insert(b.NextActorId());
  }
  CHECK(ids.size() == 200);
  CHECK(*ids.begin() > kRootActor);
}

TEST_CASE("a create message makes a mailbox and a task") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  const uint64_t id = a.NextActorId();
  const std::string meta = *EncodeValue(Value::Map{{"actor", id},
                                                   {"name", "n"},
                                                   {"class", "m.C"},
                                                   {"mesh", "mesh"},
                                                   {"rank", 1},
                                                   {"labels", Value::List{"x"}},
                                                   {"sizes", Value::List{2}},
                                                   {"owner", ToValue(ActorAddress{a.self(), kRootActor})},
                                                   {"owner_label", "root"}});
  const CallTarget agent = {{b.self(), kAgentActor}, 1};
  const auto call = a.OpenCall(kRootActor, 1);
  REQUIRE(
      a.Send(kRootActor, FrameKind::kCreate, {&agent, 1}, {PayloadKind::kNone, meta, {}}, call.get()).ok());
  const auto answer = Next(a, *call);
  REQUIRE(answer.ok());
  CHECK(answer->header.kind == FrameKind::kReply);
  const auto task = b.NextTask(kTestTimeout);
  REQUIRE(task.ok());
  CHECK(task->kind == RuntimeTask::Kind::kCreateActor);
  CHECK(task->actor == id);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kActorUp, 1));
  const ControlMessage up = cluster.daemon.Received(ControlType::kActorUp).front();
  CHECK(*up.body["rank_label"].string() == "{'x': 1/2}");

  const auto again = a.OpenCall(kRootActor, 1);
  REQUIRE(
      a.Send(kRootActor, FrameKind::kCreate, {&agent, 1}, {PayloadKind::kNone, meta, {}}, again.get()).ok());
  const auto refused = Next(a, *again);
  REQUIRE(refused.ok());
  CHECK(EventOf(*refused).kind == FailureKind::kStartFailed);
}

TEST_CASE("what an actor supervises is shown to the daemon, also to the next, until the actor ends") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  REQUIRE(a.AddActor(50, {}).ok());
  MeshRestarts restarts;
  restarts.mesh = "m";
  restarts.restarts = 2;
  a.ShowRestarts(50, restarts);
  REQUIRE(cluster.daemon.AwaitReceived(ControlType::kActorUp, 2));
  const auto shown =
      MeshRestartsFromValue(cluster.daemon.Received(ControlType::kActorUp)[1].body["restarts"]);
  REQUIRE(shown.ok());
  CHECK(shown->restarts == 2);
  a.EndActor(50, {});
  a.ShowRestarts(50, restarts);
  CHECK(a.SendReady().ok());  // Its answer comes behind whatever was sent before.
  CHECK(cluster.daemon.Received(ControlType::kActorUp).size() == 2);
}

TEST_CASE("requests to the daemon") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  const auto control = a.OpenControl();
  REQUIRE(control.ok());
  CHECK(control->valid());
  CHECK(a.SendReady().ok());
  CHECK(a.Goodbye(kTestTimeout).ok());
  CHECK(a.host_name() == "test-host");
}

TEST_CASE("the daemon's stop comes once") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  cluster.daemon.Stop(a.self(), "enough", 1'500);
  cluster.daemon.Stop(a.self(), "enough", 1'500);
  const auto task = a.NextTask(kTestTimeout);
  REQUIRE(task.ok());
  CHECK(task->kind == RuntimeTask::Kind::kStopProcess);
  CHECK(task->reason == "enough");
  CHECK(task->grace == absl::Milliseconds(1'500));
  CHECK(absl::IsDeadlineExceeded(a.NextTask(absl::ZeroDuration()).status()));
}

}  // namespace
}  // namespace monarch
