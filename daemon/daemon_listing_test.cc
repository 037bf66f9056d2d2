// What the real daemon lists for monarchctl.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/limits.h"
#include "daemon/daemon_harness.h"
#include "message/mesh_restarts.h"

namespace monarch {
namespace {

TEST_CASE("TheListingOfActorsStaysBounded") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  const auto up = [&](int64_t actor) {
    harness.Send(ControlType::kActorUp, 0, {{"actor", actor}, {"name", "a"}, {"rank", 0}});
  };
  // An answer says that all before it was read: the socket holds only so much.
  const auto flush = [&] {
    harness.Send(ControlType::kConnect, 3, {{"peer", ToValue(harness.self)}});
    REQUIRE(harness.AwaitAnswer(3).type == ControlType::kRefused);
  };
  FailureEvent failure;
  failure.kind = FailureKind::kException;
  for (int64_t actor = 100; actor < 1100; ++actor) {
    up(actor);
    up(actor);  // Said twice, it is one all the same.
    harness.Send(ControlType::kActorDown, 0, {{"actor", actor}, {"event", ToValue(failure)}});
    if (actor % 10 == 0) flush();
  }
  up(7);
  up(8);
  harness.Send(ControlType::kActorDown, 0, {{"actor", 8}});
  flush();
  const v1::GetTreeResponse tree = harness.Tree();
  REQUIRE(tree.sessions_size() == 1);
  CHECK(tree.sessions(0).actors_size() == 257);
  CHECK(tree.sessions(0).actors(0).state() == "running");
  CHECK(tree.sessions(0).actors(256).state() == "failed");
}

TEST_CASE("TheListingSaysWhatBecameOfAMeshWithARestartPolicy") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  const auto show = [&](const MeshRestarts& restarts) {
    harness.Send(ControlType::kActorUp, 0, {{"actor", 7}, {"rank", 0}, {"restarts", ToValue(restarts)}});
    harness.Send(ControlType::kConnect, 3, {{"peer", ToValue(harness.self)}});
    REQUIRE(harness.AwaitAnswer(3).type == ControlType::kRefused);
    return harness.Tree().sessions(0).actors(0).restarts();
  };
  MeshRestarts restarts;
  restarts.mesh = "m";
  restarts.policy = "one_for_one";
  CHECK(show(restarts).policy() == "one_for_one");
  restarts.incarnation = 2;
  restarts.restarts = 1;
  restarts.cause.emplace();
  restarts.cause->kind = FailureKind::kExited;
  restarts.cause->code = 3;
  const v1::MeshRestarts shown = show(restarts);
  CHECK(shown.mesh() == "m");
  CHECK(shown.incarnation() == 2);
  CHECK(shown.restarts() == 1);
  CHECK(shown.cause().code() == 3);
}

TEST_CASE("LimitsAreListedBesideTheirUse") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse spawned;
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready", "ready"}), &spawned).ok());
  harness.Send(ControlType::kActorUp, 0, {{"actor", 7}, {"rank", 0}});
  harness.Send(ControlType::kConnect, 3, {{"peer", ToValue(harness.self)}});
  REQUIRE(harness.AwaitAnswer(3).type == ControlType::kRefused);
  std::map<std::string, v1::LimitUse> limits;
  const v1::GetStatusResponse status = harness.Status();
  for (const v1::LimitUse& limit : status.limits()) limits[limit.name()] = limit;
  CHECK(limits.size() == LimitTable(Limits()).size() + 1);
  CHECK(limits["procs_per_host_max"].used() == 2);
  CHECK(limits["procs_per_session_max"].used() == 2);
  CHECK(limits["sessions_per_host_max"].used() == 1);
  CHECK(limits["actors_per_proc_max"].used() == 1);
  CHECK(limits["open_files"].used() > 5);
  CHECK(limits["open_files"].used() < limits["open_files"].value());
  // Known to processes alone.
  CHECK_FALSE(limits["mailbox_bytes_max"].has_used());
}

}  // namespace
}  // namespace monarch
