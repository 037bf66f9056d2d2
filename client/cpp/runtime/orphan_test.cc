// Actors whose owner's process has died.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "client/cpp/runtime/runtime_fixture.h"

namespace monarch {
namespace {

constexpr uint64_t kOrphan = 70;

FailureEvent Signalled() {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = 9;
  return event;
}

std::shared_ptr<Inbox> StartCall(Runtime& from, const ActorAddress& to) {
  const CallTarget target = {to, 0};
  const OnePart payload("x");
  auto call = from.OpenCall(kRootActor, 1);
  CHECK(from.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, call.get()).ok());
  return call;
}

void CheckOrphaned(Runtime& runtime, Inbox& call, const ActorAddress& actor) {
  const auto failure = Next(runtime, call);
  REQUIRE(failure.ok());
  REQUIRE(failure->header.kind == FrameKind::kFailure);
  const FailureEvent event = EventOf(*failure);
  CHECK(event.kind == FailureKind::kStopped);
  CHECK(event.reason == "owner died");
  CHECK(event.actor == actor);
  CHECK(event.mesh == "guest");
}

TEST_CASE("calls to an actor whose owner died fail at once, also the one that it is at work on") {
  Cluster cluster(GENERATE(false, true));
  Runtime& owner = cluster.Add();
  Runtime& host = cluster.Add();
  Runtime& caller = cluster.Add();
  Runtime::ActorInfo info;
  info.mesh = "guest";
  info.owner = {owner.self(), kRootActor};
  const auto mailbox = host.AddActor(kOrphan, info);
  REQUIRE(mailbox.ok());
  host.BindActor(kOrphan);
  const ActorAddress address = {host.self(), kOrphan};
  const auto running = StartCall(caller, address);
  const auto taken = Next(host, **mailbox);
  REQUIRE(taken.ok());
  // From here on its thread, which is this one, looks into no ring.
  const auto queued = StartCall(caller, address);
  const auto inside = StartCall(host, address);

  cluster.daemon.Kill(owner.self(), Signalled());
  CheckOrphaned(caller, *running, address);
  CheckOrphaned(caller, *queued, address);
  CheckOrphaned(host, *inside, address);
  const auto late = StartCall(caller, address);
  CheckOrphaned(caller, *late, address);
  const auto late_inside = StartCall(host, address);
  CheckOrphaned(host, *late_inside, address);

  // It is still there to end by itself, and an answer that comes then goes nowhere.
  CHECK(host.Reply(*taken, FrameKind::kReply, {}).ok());
  const auto stop = Next(host, **mailbox);
  REQUIRE(stop.ok());
  CHECK(stop->header.kind == FrameKind::kStopActor);
  CHECK(running->finished());
}

TEST_CASE("calls to actors of other owners go on when one owner has died") {
  Cluster cluster(GENERATE(false, true));
  Runtime& owner = cluster.Add();
  Runtime& host = cluster.Add();
  Runtime& caller = cluster.Add();
  Runtime::ActorInfo info;
  info.mesh = "guest";
  info.owner = {owner.self(), kRootActor};
  const auto orphan = host.AddActor(kOrphan, info);
  REQUIRE(orphan.ok());
  info.owner = {caller.self(), kRootActor};
  const auto other = host.AddActor(kOrphan + 1, info);
  REQUIRE(other.ok());
  const auto fails = StartCall(caller, {host.self(), kOrphan});
  const auto call = StartCall(caller, {host.self(), kOrphan + 1});
  const auto taken = Next(host, **other);
  REQUIRE(taken.ok());
  cluster.daemon.Kill(owner.self(), Signalled());
  CheckOrphaned(caller, *fails, {host.self(), kOrphan});
  CHECK(call->empty());
  CHECK(host.Reply(*taken, FrameKind::kReply, {}).ok());
  const auto reply = Next(caller, *call);
  REQUIRE(reply.ok());
  CHECK(reply->header.kind == FrameKind::kReply);
}

}  // namespace
}  // namespace monarch
