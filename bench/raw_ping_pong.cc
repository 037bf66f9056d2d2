// The limit for a call: two processes that send each other 64 bytes over a Unix socket pair and do nothing
// else. Prints one JSON object: {"p50_us": .., "p99_us": .., "switches_per_call": ..} (voluntary, of this
// process).
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock.h"

namespace {

constexpr size_t kBytes = 64;

void Pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void Echo(int fd) {
  char buffer[kBytes];
  while (read(fd, buffer, sizeof buffer) == static_cast<ssize_t>(sizeof buffer)) {
    if (write(fd, buffer, sizeof buffer) < 0) break;
  }
}

}  // namespace

// Arguments: calls, cpu of the caller, cpu of the callee (-1: free).
int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 20000;
  const int caller_cpu = argc > 2 ? std::atoi(argv[2]) : -1;
  const int callee_cpu = argc > 3 ? std::atoi(argv[3]) : -1;
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return 1;
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    close(fds[0]);
    Pin(callee_cpu);
    Echo(fds[1]);
    _exit(0);
  }
  close(fds[1]);
  Pin(caller_cpu);
  monarch::SystemClock clock;
  char buffer[kBytes] = {};
  std::vector<double> micros;
  micros.reserve(static_cast<size_t>(calls));
  rusage before{};
  const int warm_up = 2000;
  for (int i = -warm_up; i < calls; ++i) {
    if (i == 0) getrusage(RUSAGE_SELF, &before);
    const absl::Duration start = clock.Now();
    if (write(fds[0], buffer, sizeof buffer) < 0 || read(fds[0], buffer, sizeof buffer) < 0) return 1;
    if (i >= 0) micros.push_back(absl::ToDoubleMicroseconds(clock.Now() - start));
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  close(fds[0]);
  waitpid(child, nullptr, 0);
  std::sort(micros.begin(), micros.end());
  std::printf("{\"p50_us\": %.2f, \"p99_us\": %.2f, \"switches_per_call\": %.3f}\n",
              micros[micros.size() / 2], micros[micros.size() * 99 / 100],
              static_cast<double>(after.ru_nvcsw - before.ru_nvcsw) / calls);
  return 0;
}
