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

TEST_CASE("an end fits a packet however much was said at it") {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = 11;
  event.stderr_tail = event.backtrace = event.traceback = event.reason = std::string(1 << 20, 'x');
  const BookEntry entry = EndEntry(1, {kHost, 4, 1}, event);
  CHECK(EncodeControl({ControlType::kKeep, 0, entry.body})->size() < PacketSocket::kPacketBytesMax);
  SessionBook book;
  REQUIRE(AddTo(&book, entry).ok());
  CHECK(book.ends[0].second.code == 11);
}

TEST_CASE("workers of finished spawns are kept, of cut off ones killed, never launched ones forgotten") {
  SessionBook book;
  const ProcRecord worker = Worker(7);
  CHECK(FateOf(book, worker, false) == AdoptionFate::kForget);
  CHECK(FateOf(book, worker, true) == AdoptionFate::kKill);
  KeptSpawn spawn;
  spawn.request_id = "s1";
  spawn.count = 1;
  REQUIRE(AddTo(&book, EntryOf(spawn)).ok());
  CHECK(FateOf(book, worker, true) == AdoptionFate::kKeep);
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
