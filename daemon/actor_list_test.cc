#include "daemon/actor_list.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

ProcRecord& AddProc(ProcTable* procs, uint64_t proc) {
  ProcRecord record;
  record.description.address = ProcAddress{HostId(Id128{1, 2}), proc, 1};
  return procs->Add(std::move(record));
}

ActorRecord Actor(const ProcRecord& record, uint64_t actor, uint32_t rank = 0) {
  ActorRecord out;
  out.address = ActorAddress{record.description.address, actor};
  out.mesh = "m";
  out.rank = rank;
  return out;
}

TEST_CASE("ActorList.CountsEachActorOnce") {
  ProcTable procs(4);
  ProcRecord& record = AddProc(&procs, 1);
  ActorList list;
  list.Put(record, Actor(record, 5, 0));
  list.Put(record, Actor(record, 5, 3));
  CHECK(record.actors_up == 1);
  REQUIRE(list.Find(Actor(record, 5).address) != nullptr);
  CHECK(list.Find(Actor(record, 5).address)->rank == 3);
  list.Remove(record, Actor(record, 5).address);
  list.Remove(record, Actor(record, 5).address);
  CHECK(record.actors_up == 0);
  CHECK(list.all().empty());
}

TEST_CASE("ActorList.OfThoseThatFailedTheNewestStay") {
  ProcTable procs(4);
  ProcRecord& record = AddProc(&procs, 1);
  ActorList list;
  std::vector<ActorAddress> dropped;
  for (uint64_t actor = 1; actor <= 300; ++actor) {
    list.Put(record, Actor(record, actor));
    for (int time = 0; time < 2; ++time) {
      const auto one = list.MarkFailed(procs, Actor(record, actor).address);
      if (one) dropped.push_back(*one);
    }
  }
  CHECK(dropped.size() == 44);
  CHECK(dropped.front() == Actor(record, 1).address);
  CHECK(list.all().size() == 256);
  CHECK(record.actors_up == 256);
  CHECK(list.Find(Actor(record, 44).address) == nullptr);
  CHECK(list.Find(Actor(record, 45).address) != nullptr);
}

TEST_CASE("ActorList.AProcessTakesItsOwnAlong") {
  ProcTable procs(4);
  ProcRecord& ending = AddProc(&procs, 1);
  ProcRecord& other = AddProc(&procs, 2);
  ActorList list;
  for (uint64_t actor : {4, 5}) list.Put(ending, Actor(ending, actor));
  list.Put(other, Actor(other, 4));
  list.MarkFailed(procs, Actor(ending, 4).address);
  const std::vector<ActorRecord> taken = list.TakeOf(ending.description.address);
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].address == Actor(ending, 5).address);
  CHECK(list.all().size() == 1);
}

TEST_CASE("ActorList.WhatAProcessWillTellAgainIsForgottenAndItsFailuresAreNot") {
  ProcTable procs(4);
  ProcRecord& record = AddProc(&procs, 1);
  ProcRecord& other = AddProc(&procs, 2);
  ActorList list;
  for (uint64_t actor : {4, 5}) list.Put(record, Actor(record, actor));
  list.Put(other, Actor(other, 4));
  list.MarkFailed(procs, Actor(record, 4).address);
  CHECK(list.RemoveLivingOf(record) == std::vector<ActorAddress>{Actor(record, 5).address});
  CHECK(record.actors_up == 1);
  CHECK(list.Find(Actor(record, 4).address) != nullptr);
  CHECK(list.Find(Actor(other, 4).address) != nullptr);
}

}  // namespace
}  // namespace monarch
