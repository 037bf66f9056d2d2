// C++ actors that are in one handler for long.
#define CATCH_CONFIG_RUNNER
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <deque>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/cpp/client_fixture.h"
#include "monarch/client.h"

namespace monarch {
namespace {

constexpr absl::Duration kHungAfter = absl::Milliseconds(300);

// Sleeps until somebody opens the FIFO for writing.
void Await(const std::string& fifo) { close(open(fifo.c_str(), O_RDONLY | O_CLOEXEC)); }

class Worker : public Actor {
 public:
  int64_t Wait(const std::string& fifo) {
    Await(fifo);
    return 7;
  }
  int64_t Pid() { return getpid(); }
};

class Slow : public Actor {
 public:
  explicit Slow(const std::string& fifo) { Await(fifo); }
  int64_t Pid() { return getpid(); }
};

ActorTypes Types() {
  ActorTypes types;
  types.Add<Worker>("Worker").Endpoint("wait", &Worker::Wait).Endpoint("pid", &Worker::Pid);
  types.Add<Slow, std::string>("Slow").Endpoint("pid", &Slow::Pid);
  return types;
}

// --- the tests ---

class Fifo {
 public:
  explicit Fifo(const std::string& name) : path_(TempPath(name)) {
    REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
  }
  ~Fifo() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  void Open() const { close(open(path_.c_str(), O_WRONLY | O_CLOEXEC)); }

 private:
  const std::string path_;
};

// What on_hang was told. Threading: thread-safe.
class Hangs {
 public:
  void Take(const HangReport& report) {
    MutexLock lock(mu_);
    reports_.push_back(report);
    changed_.NotifyAll();
  }
  HangReport Next() {
    const SystemClock clock;
    const absl::Duration deadline = clock.Now() + kPatience;
    MutexLock lock(mu_);
    while (reports_.empty() && clock.Now() < deadline) changed_.WaitFor(mu_, deadline - clock.Now());
    if (reports_.empty()) return {};
    HangReport report = reports_.front();
    reports_.pop_front();
    return report;
  }
  size_t size() {
    MutexLock lock(mu_);
    return reports_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<HangReport> reports_;
};

TEST_CASE("an actor of a pool that hangs is told, and that it goes on, and nothing fails") {
  Hangs hangs;
  Rig rig([&](const HangReport& report) { hangs.Take(report); });
  const Fifo fifo("wait");
  const ProcMesh procs = rig.Procs({{"n", 2}});
  const ActorMesh watched = Spawn(procs.WithHungAfter(kHungAfter), "watched", "Worker");
  // On the same threads, and not watched.
  const ActorMesh beside = Spawn(procs, "beside", "Worker");
  const auto pending = Must(watched.At("n", 1)).CallOne<int64_t>("wait", fifo.path());
  const HangReport hang = hangs.Next();
  CHECK(hang.event.kind == FailureKind::kHung);
  CHECK(hang.event.mesh == "watched");
  CHECK(hang.event.rank == 1);
  CHECK(hang.event.pid == procs.pids()[1]);
  CHECK(hang.event.actor_class == "Worker");
  CHECK(hang.method == "wait");
  CHECK(hang.age >= kHungAfter);
  CHECK((hang.state == "waiting" || hang.state == "starved"));
  CHECK_FALSE(hang.recovered);
  CHECK(Must(beside.Call<int64_t>("pid").Get(kPatience)).size() == 2);
  fifo.Open();
  CHECK(Must(pending.Get(kPatience)) == 7);
  const HangReport over = hangs.Next();
  CHECK(over.recovered);
  CHECK(over.method == "wait");
  CHECK(over.age > hang.age);
  CHECK(hangs.size() == 0);
  CHECK(rig.failures.size() == 0);
}

TEST_CASE("a constructor that does not end is told") {
  Hangs hangs;
  Rig rig([&](const HangReport& report) { hangs.Take(report); });
  const Fifo fifo("constructor");
  const ProcMesh procs = rig.Procs({});
  const ActorMesh slow = Spawn(procs.WithHungAfter(kHungAfter), "slow", "Slow", fifo.path());
  CHECK(hangs.Next().method == "constructor");
  fifo.Open();
  CHECK(hangs.Next().recovered);
  CHECK(Must(slow.CallOne<int64_t>("pid").Get(kPatience)) == procs.pids()[0]);
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  if (monarch::IsWorker(argc, argv)) return monarch::RunWorker(monarch::Types());
  return Catch::Session().run(argc, argv);
}
