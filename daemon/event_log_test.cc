#include "daemon/event_log.h"

#include <catch2/catch.hpp>

namespace monarch {

TEST_CASE("ReadsBehindTheCursor") {
  EventLog log(10);
  for (const char* what : {"a", "b", "c"}) log.Add("s", what);
  const auto batch = log.Read(1, 10);
  CHECK(batch.missed == 0);
  REQUIRE(batch.entries.size() == 2);
  CHECK(batch.entries[0].what == "b");
  CHECK(batch.entries[1].cursor == 3);
  CHECK(log.Read(3, 10).entries.empty());
  CHECK(log.Read(99, 10).entries.empty());
  CHECK(log.Read(0, 2).entries.size() == 2);
}

TEST_CASE("DroppedEntriesAreCounted") {
  EventLog log(2);
  for (int i = 0; i < 5; ++i) log.Add("s", "e");
  const auto batch = log.Read(1, 10);
  CHECK(batch.missed == 2);
  REQUIRE(batch.entries.size() == 2);
  CHECK(batch.entries[0].cursor == 4);
}

TEST_CASE("LongFailuresDisplaceOlderEntries") {
  EventLog log(100, 64 << 10);
  FailureEvent failure;
  failure.traceback = std::string(20 << 10, 'x');
  for (int i = 0; i < 50; ++i) log.Add("s", "actor_failed", failure);
  CHECK(log.Read(0, 100).entries.size() == 3);
  CHECK(log.Read(0, 100).missed == 47);
  failure.traceback = std::string(1 << 20, 'x');
  log.Add("s", "actor_failed", failure);
  log.Add("s", "session_ended");
  CHECK(log.Read(0, 100).entries.size() == 1);
}

TEST_CASE("WhatIsLearnedLaterIsInTheEntryOfTheProcess") {
  EventLog log(10, 64 << 10);
  FailureEvent failure;
  failure.actor = {{HostId::Random(), 3, 1}, 0};
  FailureEvent other = failure;
  other.actor.proc.proc = 4;
  log.Add("s", "proc_ended", failure, {{"mesh", 2, "m.Class"}});
  log.Add("s", "actor_failed", failure);
  log.Add("s", "proc_ended", other);
  failure.stderr_tail = "last words";
  log.Complete("elsewhere", failure);
  CHECK(log.entries()[0].failure->stderr_tail.empty());
  log.Complete("s", failure);
  CHECK(log.entries()[0].failure->stderr_tail == "last words");
  CHECK(log.entries()[0].lost_actors[0].mesh == "mesh");
  CHECK(log.entries()[1].failure->stderr_tail.empty());
  CHECK(log.entries()[2].failure->stderr_tail.empty());
  // It counts.
  failure.stderr_tail = std::string(60 << 10, 'x');
  log.Complete("s", failure);
  CHECK(log.entries().size() == 3);
  failure.stderr_tail += std::string(4 << 10, 'x');
  log.Complete("s", failure);
  CHECK(log.entries().size() == 2);
}

TEST_CASE("SubscribersHearOfNews") {
  EventLog log(2);
  int heard = 0;
  const uint64_t id = log.Subscribe([&] { ++heard; });
  log.Add("s", "e");
  log.Unsubscribe(id);
  log.Add("s", "e");
  CHECK(heard == 1);
}

TEST_CASE("TheEndOfAHungHandlerIsAnEventAndStandsAtItsBeginning") {
  EventLog log(10);
  HangNotice notice;
  notice.event.kind = FailureKind::kHung;
  notice.event.actor = {ProcAddress{HostId(Id128{1, 2}), 3, 1}, 4};
  notice.hang = {"train", absl::Seconds(60), "waiting", "", false};
  notice.event.reason = notice.hang.Text();
  log.AddHang("other", notice);
  log.AddHang("s", notice);
  notice.hang = {"train", absl::Seconds(71), "", "", true};
  notice.event.reason = notice.hang.Text();
  log.AddHang("s", notice);
  const auto entries = log.Read(0, 10).entries;
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].recovered_after == absl::ZeroDuration());
  CHECK(entries[1].what == "actor_hung");
  CHECK(entries[1].recovered_after == absl::Seconds(71));
  CHECK(entries[1].failure->reason ==
        "train has been at work for 60.0 s: waiting; train has ended after 71.0 s");
  CHECK(entries[2].what == "actor_recovered");
  CHECK(entries[2].failure->reason == "train has ended after 71.0 s");
}

}  // namespace monarch
