// A C++ call of 64 bytes to a C++ actor in another process, one at a time. Prints one JSON object: {"p50_us":
// .., "p99_us": .., "switches_per_call": .., "callee_switches_per_call": ..} (voluntary).
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "monarch/client.h"

namespace {

constexpr int kWarmUp = 2000;

// Every thread of this process, the library's too.
void PinProcess(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    sched_setaffinity(std::stoi(task.path().filename().string()), sizeof set, &set);
  }
}

int64_t VoluntarySwitches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

class Echo : public monarch::Actor {
 public:
  std::string Call(const std::string& text) const { return text; }
  int64_t Switches() const { return VoluntarySwitches(); }
  void Pin(int64_t cpu) { PinProcess(static_cast<int>(cpu)); }
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

// Arguments: calls, cpu of the caller, cpu of the callee (-1: free).
int main(int argc, char** argv) {
  monarch::ActorTypes types;
  types.Add<Echo>("Echo")
      .Endpoint("call", &Echo::Call)
      .Endpoint("switches", &Echo::Switches)
      .Endpoint("pin", &Echo::Pin);
  if (monarch::IsWorker(argc, argv)) return monarch::RunWorker(types);

  const int calls = argc > 1 ? std::atoi(argv[1]) : 20000;
  const int caller_cpu = argc > 2 ? std::atoi(argv[2]) : -1;
  const int64_t callee_cpu = argc > 3 ? std::atoi(argv[3]) : -1;
  auto client = monarch::Client::Connect();
  if (!client.ok()) return Fail(client.status());
  auto procs = (*client)->this_host().SpawnProcs({{"gpus", 1}});
  if (!procs.ok()) return Fail(procs.status());
  auto echo = procs->Spawn("echo", "Echo");
  if (!echo.ok()) return Fail(echo.status());
  PinProcess(caller_cpu);
  if (const absl::Status pinned = echo->CallOne<void>("pin", callee_cpu).Get(); !pinned.ok())
    return Fail(pinned);

  const monarch::SystemClock clock;
  const std::string payload(64, 'x');
  std::vector<double> micros;
  micros.reserve(static_cast<size_t>(calls));
  int64_t mine = 0, theirs = 0;
  for (int i = -kWarmUp; i < calls; ++i) {
    if (i == 0) {
      theirs = echo->CallOne<int64_t>("switches").Get().value_or(0);
      mine = VoluntarySwitches();
    }
    const absl::Duration start = clock.Now();
    const auto answer = echo->CallOne<std::string>("call", payload).Get();
    if (!answer.ok()) return Fail(answer.status());
    if (i >= 0) micros.push_back(absl::ToDoubleMicroseconds(clock.Now() - start));
  }
  mine = VoluntarySwitches() - mine;
  theirs = echo->CallOne<int64_t>("switches").Get().value_or(0) - theirs;
  std::sort(micros.begin(), micros.end());
  std::printf(
      "{\"p50_us\": %.2f, \"p99_us\": %.2f, \"switches_per_call\": %.3f, \"callee_switches_per_call\": "
      "%.3f}\n",
      micros[micros.size() / 2], micros[micros.size() * 99 / 100], static_cast<double>(mine) / calls,
      static_cast<double>(theirs) / calls);
  return 0;
}
