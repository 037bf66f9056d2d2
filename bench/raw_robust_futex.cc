// The limit for kill-to-error: a process with the given resident size holds a robust futex; the parent waits
// on the word while a thread sends SIGKILL. Prints {"futex_ms": .., "pidfd_ms": ..}: from kill(2) to the wake
// of each.
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"

namespace {

struct Shared {
  pthread_mutex_t mutex;
  std::atomic<uint32_t> ready;
};

std::atomic<uint32_t>* Word(Shared* shared) {
  return reinterpret_cast<std::atomic<uint32_t>*>(&shared->mutex);
}

[[noreturn]] void Victim(Shared* shared, size_t megabytes) {
  pthread_mutex_lock(&shared->mutex);
  char* memory = static_cast<char*>(malloc(megabytes << 20));
  std::memset(memory, 1, megabytes << 20);
  shared->ready.store(1);
  syscall(SYS_futex, &shared->ready, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const size_t megabytes = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 50;
  auto* shared =
      static_cast<Shared*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) return 1;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->mutex, &attributes);
  const pid_t victim = fork();
  if (victim < 0) return 1;
  if (victim == 0) Victim(shared, megabytes);
  while (shared->ready.load() == 0) syscall(SYS_futex, &shared->ready, FUTEX_WAIT, 0, nullptr, nullptr, 0);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, victim, 0));

  monarch::SystemClock clock;
  absl::Duration pidfd_at;
  std::thread by_pidfd([&] {
    pollfd wait{pidfd, POLLIN, 0};
    poll(&wait, 1, -1);
    pidfd_at = clock.Now();
  });
  const uint32_t value = Word(shared)->fetch_or(FUTEX_WAITERS) | FUTEX_WAITERS;
  absl::Duration start;
  std::thread killer([&] {
    start = clock.Now();
    kill(victim, SIGKILL);
  });
  while ((Word(shared)->load() & FUTEX_OWNER_DIED) == 0) {
    syscall(SYS_futex, Word(shared), FUTEX_WAIT, value, nullptr, nullptr, 0);
  }
  const absl::Duration futex_at = clock.Now();
  killer.join();
  by_pidfd.join();
  waitpid(victim, nullptr, 0);
  std::printf("{\"futex_ms\": %.3f, \"pidfd_ms\": %.3f}\n", absl::ToDoubleMilliseconds(futex_at - start),
              absl::ToDoubleMilliseconds(pidfd_at - start));
  return 0;
}
