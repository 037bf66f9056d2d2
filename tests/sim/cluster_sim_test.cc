// N seeds of the simulation. MONARCH_SIM_SEEDS: how many (1,000); MONARCH_SIM_FIRST: the first;
// MONARCH_SIM_SEED: that one alone, with its trace and the daemons' logs as it goes.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/numbers.h"
#include "base/log.h"
#include "tests/sim/scenario.h"

namespace monarch::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// A short path: socket names are bounded.
class Directory {
 public:
  Directory() { REQUIRE(mkdtemp(path_) != nullptr); }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/monarch-sim-XXXXXX";
};

size_t OpenFds() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

void Print(uint64_t seed, const Scenario::Outcome& outcome) {
  for (const std::string& line : outcome.trace) std::printf("%s\n", line.c_str());
  std::printf("seed %lu fails; again, alone: MONARCH_SIM_SEED=%lu\n", static_cast<unsigned long>(seed),
              static_cast<unsigned long>(seed));
  for (const std::string& line : outcome.violations) std::printf("  %s\n", line.c_str());
}

TEST_CASE("every seed keeps the rules") {
  const Directory dir;
  const uint64_t alone = FromEnvironment("MONARCH_SIM_SEED", 0);
  const uint64_t first = alone != 0 ? alone : FromEnvironment("MONARCH_SIM_FIRST", 1);
  const uint64_t count = alone != 0 ? 1 : FromEnvironment("MONARCH_SIM_SEEDS", 1000);
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (alone == 0) SetLogFd(null);
  SetLogLevel(alone != 0 ? LogLevel::kDebug : LogLevel::kError);
  uint64_t failed = 0;
  Scenario::Outcome sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const size_t fds = OpenFds();
    Scenario::Outcome outcome = Scenario::Run(seed, dir.path(), alone != 0);
    if (OpenFds() != fds)
      outcome.violations.push_back("fds are left: " + std::to_string(OpenFds()) + ", before " +
                                   std::to_string(fds));
    sum.spawns += outcome.spawns;
    sum.spawned += outcome.spawned;
    sum.stops += outcome.stops;
    sum.deaths += outcome.deaths;
    sum.frames += outcome.frames;
    if (outcome.violations.empty()) continue;
    if (++failed <= 3) Print(seed, outcome);
  }
  std::printf(
      "%lu seeds: %zu spawns, of which %zu succeeded; %zu stops; %zu deaths; %zu frames; %lu seeds failed\n",
      static_cast<unsigned long>(count), sum.spawns, sum.spawned, sum.stops, sum.deaths, sum.frames,
      static_cast<unsigned long>(failed));
  SetLogFd(STDERR_FILENO);
  close(null);
  CHECK(failed == 0);
}

TEST_CASE("a seed is one run") {
  const Directory dir;
  SetLogLevel(LogLevel::kError);
  for (const uint64_t seed : {7, 8, 9}) {
    const auto once = Scenario::Run(seed, dir.path(), false);
    const auto again = Scenario::Run(seed, dir.path(), false);
    CHECK(once.trace == again.trace);
  }
}

}  // namespace
}  // namespace monarch::sim
