#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "monarch/client.h"

// For programs that are their own workers, under a private daemon of the real kind.
namespace monarch {

// Longer than anything there takes; a test that runs into it has failed.
constexpr absl::Duration kPatience = absl::Seconds(30);

inline std::string TempPath(const std::string& name) {
  const char* dir = getenv("TEST_TMPDIR");
  return std::string(dir == nullptr ? "/tmp" : dir) + "/" + name;
}

// In the test's tree the launcher is not beside the daemon, where it is installed.
inline std::string Monarchd() {
  char here[4096];
  REQUIRE(getcwd(here, sizeof(here)) != nullptr);
  const std::string path = TempPath("monarchd");
  std::ofstream(path) << "#!/bin/sh\nexec " << here << "/daemon/monarchd \"$@\" --launcher " << here
                      << "/daemon/launcher/monarch-launcher\n";
  REQUIRE(chmod(path.c_str(), 0755) == 0);
  return path;
}

// What on_failure was told. Threading: thread-safe.
class Failures {
 public:
  bool Take(const FailureEvent& event) {
    MutexLock lock(mu_);
    events_.push_back(event);
    changed_.NotifyAll();
    return true;
  }
  // The first one; nothing within kPatience: none.
  std::optional<FailureEvent> First() {
    const SystemClock clock;
    const absl::Duration deadline = clock.Now() + kPatience;
    MutexLock lock(mu_);
    while (events_.empty()) {
      if (clock.Now() > deadline) return std::nullopt;
      changed_.WaitFor(mu_, deadline - clock.Now());
    }
    return events_.front();
  }
  size_t size() {
    MutexLock lock(mu_);
    return events_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<FailureEvent> events_;
};

struct Rig {
  Failures failures;
  std::unique_ptr<Client> client;

  explicit Rig(std::function<void(const HangReport&)> on_hang = {}) {
    ConnectOptions options;
    options.address = "private";
    options.monarchd_path = Monarchd();
    options.on_failure = [this](const FailureEvent& event) { return failures.Take(event); };
    options.on_hang = std::move(on_hang);
    auto connected = Client::Connect(std::move(options));
    INFO(connected.status().ToString());
    REQUIRE(connected.ok());
    client = *std::move(connected);
  }
  ProcMesh Procs(const Dims& dims) const {
    auto procs = client->this_host().SpawnProcs(dims);
    INFO(procs.status().ToString());
    REQUIRE(procs.ok());
    return *std::move(procs);
  }
};

template <typename... Args>
ActorMesh Spawn(const ProcMesh& procs, const std::string& name, const std::string& type, Args... args) {
  auto mesh = procs.Spawn(name, type, std::move(args)...);
  INFO(mesh.status().ToString());
  REQUIRE(mesh.ok());
  return *std::move(mesh);
}

template <typename T>
T Must(const absl::StatusOr<T>& result) {
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *result;
}

}  // namespace monarch
