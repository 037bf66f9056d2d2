// Meshes, processes and whole clients are started and stopped, again and again, with calls in flight: each
// call ends, with its own value or a typed error; no program says anything; and nothing grows. Under the
// thread sanitizer the client, the daemon, the launcher and the workers are all looked at.
#define CATCH_CONFIG_RUNNER
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "client/cpp/client_fixture.h"

namespace monarch {
namespace {

constexpr int kRoundsDefault = 100;  // MONARCH_ROUNDS
constexpr int kProcsEvery = 10;      // rounds, after which the processes are new, too
constexpr int kClientEvery = 50;     // and the client with its daemon
constexpr int kCallers = 3;
constexpr size_t kMembers = 2;

class Adder : public Actor {
 public:
  int64_t Add(int64_t a, int64_t b) { return a + b; }
};

ActorTypes Types() {
  ActorTypes types;
  types.Add<Adder>("Adder").Endpoint("add", &Adder::Add);
  return types;
}

int Rounds() {
  const char* text = getenv("MONARCH_ROUNDS");
  return text == nullptr ? kRoundsDefault : std::max(1, atoi(text));
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// What all programs of the test, its own included, write to stderr from here on.
// Threading: confined to the test.
class Stderr {
 public:
  explicit Stderr(std::string path) : path_(std::move(path)), before_(dup(STDERR_FILENO)) {
    const int file = open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    REQUIRE(dup2(file, STDERR_FILENO) == STDERR_FILENO);
    close(file);
  }
  ~Stderr() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  std::string text() const { return ReadAll(path_); }

 private:
  const std::string path_;
  const int before_;
};

size_t CountIn(const std::string& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

struct Usage {
  size_t fds, threads;
};

Usage UsageOf(const std::string& pid) {
  return {CountIn("/proc/" + pid + "/fd"), CountIn("/proc/" + pid + "/task")};
}

// Callers on threads of their own, that call whatever mesh there is.
// Threading: thread-safe.
class Callers {
 public:
  Callers() {
    for (int i = 0; i < kCallers; ++i) threads_.emplace_back([this, i] { Run(i); });
  }
  // The last mesh has to be stopped: that ends their last calls.
  ~Callers() {
    {
      MutexLock lock(mu_);
      ended_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Use(const ActorMesh& mesh) {
    MutexLock lock(mu_);
    mesh_ = mesh;
    ++generation_;
    changed_.NotifyAll();
  }
  // Until so many more calls were answered, so that some are in flight.
  bool AwaitAnswers(int64_t count) {
    const SystemClock clock;
    const absl::Duration deadline = clock.Now() + kPatience;
    MutexLock lock(mu_);
    const int64_t wanted = answered_ + count;
    while (answered_ < wanted) {
      if (clock.Now() > deadline) return false;
      changed_.WaitFor(mu_, deadline - clock.Now());
    }
    return true;
  }
  int64_t answered() {
    MutexLock lock(mu_);
    return answered_;
  }
  int64_t failed() {
    MutexLock lock(mu_);
    return failed_;
  }
  std::map<std::string, int> wrong() {
    MutexLock lock(mu_);
    return wrong_;
  }

 private:
  // A newer one than that of `generation`.
  std::optional<ActorMesh> MeshAfter(int* generation) {
    MutexLock lock(mu_);
    while ((!mesh_.has_value() || generation_ <= *generation) && !ended_) changed_.Wait(mu_);
    *generation = generation_;
    return ended_ ? std::nullopt : mesh_;
  }

  void Run(int number) {
    int generation = 0;
    std::optional<ActorMesh> mesh = MeshAfter(&generation);
    for (int64_t i = 0; mesh.has_value(); ++i) {
      absl::Status failed;
      if (number == 0) {
        const auto sums = mesh->Call<int64_t>("add", i, number).Get(kPatience);
        failed = sums.status();
        if (sums.ok() && sums->values() != std::vector<int64_t>(kMembers, i)) Count("a foreign answer");
      } else {
        const auto sum = mesh->Choose<int64_t>("add", i, number).Get(kPatience);
        failed = sum.status();
        if (sum.ok() && *sum != i + number) Count("a foreign answer");
      }
      End(failed);
      if (!failed.ok()) mesh = MeshAfter(&generation);
    }
  }

  void End(const absl::Status& status) {
    const auto event = FailureOf(status);
    if (!status.ok() && (!event.ok() || event->kind != FailureKind::kStopped)) Count(status.ToString());
    MutexLock lock(mu_);
    ++(status.ok() ? answered_ : failed_);
    changed_.NotifyAll();
  }

  void Count(const std::string& what) {
    MutexLock lock(mu_);
    ++wrong_[what];
  }

  Mutex mu_;
  CondVar changed_;
  std::optional<ActorMesh> mesh_ ABSL_GUARDED_BY(mu_);
  int generation_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t answered_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t failed_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, int> wrong_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

// Some rounds under one client. Returns what that holds when they are over.
Usage RoundsOfOneClient(int rounds) {
  Rig rig;
  Callers callers;
  std::optional<ProcMesh> procs;
  for (int round = 0; round < rounds; ++round) {
    if (!procs.has_value()) procs = rig.Procs({{"gpus", kMembers}});
    const ActorMesh mesh = Spawn(*procs, "adders" + std::to_string(round), "Adder");
    callers.Use(mesh);
    REQUIRE(callers.AwaitAnswers(2 * kCallers));
    if ((round + 1) % kProcsEvery == 0) {
      // The calls in flight go with the processes.
      const absl::Status stopped = procs->Stop();
      INFO(stopped.ToString());
      REQUIRE(stopped.ok());
      procs.reset();
    } else {
      const absl::Status stopped = mesh.Stop().Get(kPatience);
      INFO(stopped.ToString());
      REQUIRE(stopped.ok());
    }
  }
  CHECK(callers.wrong() == std::map<std::string, int>());
  CHECK(callers.answered() >= 2 * kCallers * rounds);
  CHECK(rig.failures.size() == 0);
  return UsageOf("self");
}

TEST_CASE("meshes, processes and clients come and go with calls in flight") {
  const int rounds = Rounds();
  const std::string reports = TempPath("reports");
  std::filesystem::create_directories(reports);
  const char* sanitizer = getenv("TSAN_OPTIONS");
  // Of the programs that are started here; this one's come on its stderr.
  setenv("TSAN_OPTIONS",
         (std::string(sanitizer == nullptr ? "" : sanitizer) + " log_path=" + reports + "/r").c_str(), 1);
  {
    const Stderr said(TempPath("stderr"));
    RoundsOfOneClient(kClientEvery);  // What is made once and kept is made.
    const Usage idle = UsageOf("self");
    const Usage busy = RoundsOfOneClient(kProcsEvery);
    // What grows does so in each client. In some, a channel to the daemon that was dropped for want of
    // requests is not yet closed when the next is in use.
    Usage least{SIZE_MAX, SIZE_MAX};
    for (int left = rounds; left > 0; left -= kClientEvery) {
      const Usage after = RoundsOfOneClient(std::min(left, kClientEvery));
      least = {std::min(least.fds, after.fds), std::min(least.threads, after.threads)};
    }
    CHECK(least.fds <= busy.fds + 2);
    CHECK(least.threads <= busy.threads + 2);
    const Usage last = UsageOf("self");
    CHECK(last.fds <= idle.fds);
    CHECK(last.threads <= idle.threads);
    CHECK(said.text() == "");
  }
  for (const auto& report : std::filesystem::directory_iterator(reports))
    FAIL_CHECK(report.path().string() << ":\n" << ReadAll(report.path().string()));
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  if (monarch::IsWorker(argc, argv)) return monarch::RunWorker(monarch::Types());
  return Catch::Session().run(argc, argv);
}
