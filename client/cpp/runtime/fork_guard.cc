#include "client/cpp/runtime/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace monarch {
namespace {

// Forks between the first process and this one.
std::atomic<uint64_t> fork_count{0};

}  // namespace

uint64_t ForkGuard::Generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1); });
  static_cast<void>(registered);
  return fork_count.load(std::memory_order_relaxed);
}

absl::Status ForkGuard::Check() const {
  if (!in_child()) return absl::OkStatus();
  return absl::FailedPreconditionError("this process was forked from the one that is connected to monarchd");
}

}  // namespace monarch
