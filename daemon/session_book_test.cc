#include "daemon/session_book.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/scoped_fd.h"
#include "daemon/adoption.h"
#include "message/memfd.h"

namespace monarch {
namespace {

const HostId kHost = HostId::Random();

absl::Status AddTo(SessionBook* book, const BookEntry& entry) {
  std::vector<ScopedFd> fds;
  for (const int fd : entry.fds) {
    ScopedFd borrowed(fd);
    fds.push_back(*borrowed.Dup());
    borrowed.release();
  }
  return book->Add(entry.body, std::move(fds));
}

ProcRecord Worker(uint64_t number) {
  ProcRecord record;
  record.description.address = {kHost, number, 1};
  record.description.rank = 3;
  record.description.mesh = "workers";
  record.spawn_id = "s1";
  record.spawn_index = 3;
  return record;
}

TEST_CASE("a process comes out of the book as it went in") {
  ProcRecord record = Worker(7);
  record.stop_reason = "told to";
  SessionBook book;
  REQUIRE(AddTo(&book, EntryOf(record)).ok());
  REQUIRE(book.procs.size() == 1);
  CHECK(book.procs[0].description.address == record.description.address);
  CHECK(book.procs[0].description.mesh == "workers");
  CHECK(book.procs[0].spawn_id == "s1");
  CHECK(book.procs[0].spawn_index == 3);
  CHECK(book.procs[0].stop_reason == "told to");
  CHECK_FALSE(book.procs[0].introduced());
}

TEST_CASE("a link keeps its ring only while it is under way") {
  const ScopedFd ring = *CreateSealedMemfd("ring", 4096);
  KeptLink link{1, 2, true, 5, 6, true, *ring.Dup()};
  SessionBook book;
  REQUIRE(AddTo(&book, EntryOf(link)).ok());
  CHECK(book.links[0].ring_fd.valid());
  link.under_way = false;
  CHECK(EntryOf(link).fds.empty());
  REQUIRE(AddTo(&book, EntryOf(link)).ok());
  CHECK(book.links[1].bit_in_a == 5);
  CHECK(book.links[1].bit_in_b == 6);
}

TEST_CASE("an entry that is not understood is refused and spoils nothing") {
  SessionBook book;
  CHECK_FALSE(book.Add(Value(), {}).ok());
  CHECK_FALSE(book.Add(Value::Map{{"kind", Value("of the future")}}, {}).ok());
  CHECK_FALSE(book.Add(Value::Map{{"kind", Value("link")}, {"a", Value(1)}, {"b", Value(1)}}, {}).ok());
  CHECK_FALSE(book.Add(Value::Map{{"kind", Value("session")}}, {}).ok());
  CHECK(AddTo(&book, EntryOf(Worker(1))).ok());
}

TEST_CASE("actors, their failures and their hangs come out of the book as they went in") {
  SessionBook book;
  ActorRecord actor;
  actor.address = {{kHost, 7, 1}, 9};
  actor.owner = {{kHost, 1, 1}, 1};
  actor.mesh = "trainers";
  actor.rank = 3;
  actor.incarnation = 2;
  actor.failed = true;
  REQUIRE(AddTo(&book, EntryOf(actor)).ok());
  CHECK(book.actors[0].address == actor.address);
  CHECK(book.actors[0].owner == actor.owner);
  CHECK(book.actors[0].mesh == "trainers");
  CHECK(book.actors[0].incarnation == 2);
  CHECK(book.actors[0].failed);
  FailureEvent failure;
  failure.kind = FailureKind::kException;
  failure.traceback = "line";
  REQUIRE(AddTo(&book, FailureEntry(1, failure)).ok());
  CHECK(book.failures[0].traceback == "line");
  KeptHang hang;
  hang.notice.event.kind = FailureKind::kHung;
  hang.notice.event.actor = actor.address;
  hang.notice.hang.method = "train";
  hang.began = absl::Nanoseconds(123456789);
  REQUIRE(AddTo(&book, EntryOf(hang)).ok());
  CHECK(book.hangs[0].notice.hang.method == "train");
  CHECK(book.hangs[0].began == hang.began);
}

TEST_CASE("spawns of more processes than any session has are refused") {
  const auto entry = [](const std::string& id, int64_t count) {
    return Value(Value::Map{{"kind", Value("spawn")},
                            {"id", Value(id)},
                            {"mesh", Value("m")},
                            {"labels", Value(Value::List{Value("x")})},
                            {"sizes", Value(Value::List{Value(count)})},
                            {"first", Value(1)},
                            {"count", Value(count)}});
  };
  SessionBook book;
  CHECK(absl::IsResourceExhausted(book.Add(entry("a", int64_t{1} << 40), {})));
  CHECK(book.Add(entry("b", 1 << 20), {}).ok());
  CHECK(absl::IsResourceExhausted(book.Add(entry("c", 1), {})));
}

TEST_CASE("an end fits a packet however much was said at it") {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = 11;
  event.stderr_tail = event.backtrace = event.traceback = event.reason = std::string(1 << 20, 'x');
  const std::string name(5000, 'n');
  const BookEntry entry =
      EntryOf(1, {{kHost, 4, 1}, event, std::vector<EventLog::LostActor>(100, {name, 2, name})});
  CHECK(EncodeControl({ControlType::kKeep, 0, entry.body})->size() < PacketSocket::kPacketBytesMax);
  SessionBook book;
  REQUIRE(AddTo(&book, entry).ok());
  CHECK(book.ends[0].event.code == 11);
  CHECK(book.ends[0].lost_actors[0].rank == 2);
}

TEST_CASE("workers of finished spawns are kept, of cut off ones killed, never launched ones forgotten") {
  SessionBook book;
  const ProcRecord worker = Worker(7);
  CHECK(FateOf(book, worker, false) == AdoptionFate::kForget);
  CHECK(FateOf(book, worker, true) == AdoptionFate::kKill);
  KeptSpawn spawn;
  spawn.request_id = "s1";
  spawn.first = 7;
  spawn.count = 1;
  REQUIRE(AddTo(&book, EntryOf(spawn)).ok());
  CHECK(FateOf(book, worker, true) == AdoptionFate::kKeep);
  // The spawn was cut off once, and repeated.
  CHECK(FateOf(book, Worker(6), true) == AdoptionFate::kKill);
  CHECK(FateOf(book, Worker(8), true) == AdoptionFate::kKill);
}

TEST_CASE("a spawn of some ranks comes out of the book as it went in") {
  KeptSpawn spawn;
  spawn.request_id = "s1";
  spawn.shape = *Shape::Create({"gpus"}, *NDSlice::RowMajor({8}));
  spawn.ranks = {3, 6};
  spawn.incarnation = 2;
  spawn.first = 70;
  spawn.count = 2;
  SessionBook book;
  REQUIRE(AddTo(&book, EntryOf(spawn)).ok());
  CHECK(book.spawns.at("s1").ranks == spawn.ranks);
  CHECK(book.spawns.at("s1").incarnation == 2);
  spawn.count = 8;
  CHECK_FALSE(AddTo(&book, EntryOf(spawn)).ok());
  spawn.count = 2;
  spawn.ranks = {3, 8};
  CHECK_FALSE(AddTo(&book, EntryOf(spawn)).ok());
}

TEST_CASE("a host keeps its id until it boots, and numbers processes anew") {
  const HostState first = NextHostState(absl::NotFoundError("none"), "boot 1");
  CHECK(first.first_proc() == 1);
  const auto saved = [](const HostState& state) {
    return Value(Value::Map{
        {"host", ToValue(state.host)}, {"generation", Value(state.generation)}, {"boot", Value(state.boot)}});
  };
  const HostState second = NextHostState(saved(first), "boot 1");
  CHECK(second.host == first.host);
  CHECK(second.first_proc() > first.first_proc());
  CHECK(NextHostState(saved(second), "boot 2").host != first.host);
  CHECK(NextHostState(Value(Value::Map{}), "boot 1").host != first.host);
}

TEST_CASE("a launcher's state comes back, and nonsense is refused") {
  const LauncherState state{SessionId::Random(), kHost, 123, 456, StartToken::Random(), "/door"};
  const auto back = LauncherStateFromValue(ToValue(state));
  REQUIRE(back.ok());
  CHECK(back->session == state.session);
  CHECK(back->start_time == 456);
  CHECK_FALSE(LauncherStateFromValue(Value(Value::Map{})).ok());
  LauncherState odd = state;
  odd.pid = 1;
  CHECK_FALSE(LauncherStateFromValue(ToValue(odd)).ok());
}

}  // namespace
}  // namespace monarch
