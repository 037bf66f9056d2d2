// Calls that are given up, by their own limit or by their caller.
#define CATCH_CONFIG_RUNNER
#include <poll.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "client/cpp/client_fixture.h"
#include "monarch/client.h"

namespace monarch {
namespace {

// --- what runs in the workers ---

class Worker : public Actor {
 public:
  int64_t Rank() const { return static_cast<int64_t>(rank()); }
  void Note(int64_t value) { notes_.push_back(value); }
  std::vector<int64_t> Notes() const { return notes_; }
  // Until the caller gives up; false if it does not.
  bool Work(const std::string& begun) {
    std::ofstream(begun) << "x";
    const SystemClock clock;
    const absl::Duration deadline = clock.Now() + kPatience;
    while (!call_given_up()) {
      if (clock.Now() > deadline) return false;
      poll(nullptr, 0, 1);
    }
    notes_.push_back(-1);
    return true;
  }
  // The member of rank 0 at once, the others as above.
  bool WorkOfOthers(const std::string& begun) { return rank() == 0 || Work(begun); }
  bool IsGivenUp() const { return call_given_up(); }

 private:
  std::vector<int64_t> notes_;
};

ActorTypes Types() {
  ActorTypes types;
  types.Add<Worker>("Worker")
      .Endpoint("rank", &Worker::Rank)
      .Endpoint("note", &Worker::Note)
      .Endpoint("notes", &Worker::Notes)
      .Endpoint("work", &Worker::Work)
      .Endpoint("work_of_others", &Worker::WorkOfOthers)
      .Endpoint("is_given_up", &Worker::IsGivenUp);
  return types;
}

// --- the tests ---

using Notes = std::vector<int64_t>;

// A path that is not there.
std::string Missing(const std::string& name) {
  const std::string path = TempPath(name);
  unlink(path.c_str());
  return path;
}

bool Appears(const std::string& path) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + kPatience;
  while (access(path.c_str(), F_OK) != 0) {
    if (clock.Now() > deadline) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

Notes NotesOf(const ActorMesh& worker) { return Must(worker.CallOne<Notes>("notes").Get(kPatience)); }

TEST_CASE("a call ends with its limit, and the endpoint sees it") {
  Rig rig;
  const ActorMesh worker = Spawn(rig.Procs({}), "worker", "Worker");
  const ActorMesh limited = worker.WithTimeout(absl::Milliseconds(50));
  const auto work = limited.CallOne<bool>("work", Missing("begun"));
  const absl::Status status = work.Get(kPatience).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(std::string(status.message()).find("time limit from rank 0") != std::string::npos);
  CHECK(work.Get(kPatience).status() == status);
  CHECK(NotesOf(worker) == Notes{-1});
  // Nothing of it is left for the next call.
  CHECK_FALSE(Must(worker.CallOne<bool>("is_given_up").Get(kPatience)));
  CHECK(Must(limited.WithTimeout(absl::InfiniteDuration()).CallOne<int64_t>("rank").Get(kPatience)) == 0);
  CHECK(rig.failures.size() == 0);
}

TEST_CASE("a call whose limit has passed before it begins is never made") {
  Rig rig;
  const ActorMesh worker = Spawn(rig.Procs({}), "worker", "Worker");
  const std::string begun = Missing("before");
  const auto work = worker.CallOne<bool>("work", begun);
  REQUIRE(Appears(begun));
  const auto note = worker.WithTimeout(absl::Milliseconds(20)).CallOne<void>("note", 1);
  CHECK(absl::IsDeadlineExceeded(note.Get(kPatience)));
  work.Cancel();
  CHECK(NotesOf(worker) == Notes{-1});
}

TEST_CASE("cancel frees who waits, drops what has not begun, and tells what runs") {
  Rig rig;
  const ActorMesh worker = Spawn(rig.Procs({}), "worker", "Worker");
  const std::string begun = Missing("cancel");
  const auto work = worker.CallOne<bool>("work", begun);
  const auto note = worker.CallOne<void>("note", 2);
  absl::Status waited;
  std::thread waiter([&] { waited = work.Get(kPatience).status(); });
  const bool appeared = Appears(begun);
  note.Cancel();
  work.Cancel();
  waiter.join();
  CHECK(appeared);
  CHECK(absl::IsCancelled(waited));
  CHECK(absl::IsCancelled(note.Get(kPatience)));
  CHECK(NotesOf(worker) == Notes{-1});
}

TEST_CASE("what came before a call was given up is kept, and cancels nothing afterwards") {
  Rig rig;
  const ActorMesh workers = Spawn(rig.Procs({{"n", 2}}), "workers", "Worker");
  for (const bool by_limit : {true, false}) {
    const std::string begun = Missing("partly");
    const ActorMesh called = by_limit ? workers.WithTimeout(absl::Milliseconds(500)) : workers;
    const auto work = called.Call<bool>("work_of_others", begun);
    if (!by_limit) {
      REQUIRE(Appears(begun));
      // Rank 0 answers messages in order, so its answer is here before this one.
      CHECK(Must(Must(workers.At("n", 0)).CallOne<int64_t>("rank").Get(kPatience)) == 0);
      work.Cancel();
    }
    const auto each = Must(work.GetEach(kPatience));
    CHECK(Must(each[0]));
    CHECK(each[1].status().code() ==
          (by_limit ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled));
    CHECK(work.Get(kPatience).status().code() == each[1].status().code());
  }
  const auto rank = workers.Call<int64_t>("rank");
  CHECK(Must(rank.Get(kPatience)).values() == Notes{0, 1});
  rank.Cancel();
  CHECK(Must(rank.Get(kPatience)).values() == Notes{0, 1});
}

TEST_CASE("a slice of a mesh with a limit has it too") {
  Rig rig;
  const ActorMesh workers = Spawn(rig.Procs({{"n", 2}}), "workers", "Worker");
  const ActorMesh limited = workers.WithTimeout(absl::Milliseconds(20));
  const auto one = Must(limited.At("n", 1)).CallOne<bool>("work", Missing("slice"));
  CHECK(absl::IsDeadlineExceeded(one.Get(kPatience).status()));
  const auto range = Must(limited.Select("n", 0, 1)).Call<bool>("work", Missing("range"));
  CHECK(absl::IsDeadlineExceeded(range.Get(kPatience).status()));
}

TEST_CASE("choose takes each member now and then") {
  Rig rig;
  const ActorMesh workers = Spawn(rig.Procs({{"n", 3}}), "workers", "Worker");
  std::set<int64_t> seen;
  // It misses one by chance less often than once in 10^15 runs.
  for (int i = 0; i < 100; ++i) seen.insert(Must(workers.Choose<int64_t>("rank").Get(kPatience)));
  CHECK(seen == std::set<int64_t>{0, 1, 2});
  const auto late = workers.WithTimeout(absl::Milliseconds(20)).Choose<bool>("work", Missing("choose"));
  CHECK(absl::IsDeadlineExceeded(late.Get(kPatience).status()));
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  if (monarch::IsWorker(argc, argv)) return monarch::RunWorker(monarch::Types());
  return Catch::Session().run(argc, argv);
}
