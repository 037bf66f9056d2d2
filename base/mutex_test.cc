#include "base/mutex.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace monarch {
namespace {

// Threading: thread-safe.
class Counter {
 public:
  void Increment() {
    MutexLock lock(mu_);
    ++value_;
    changed_.NotifyAll();
  }
  int AwaitAtLeast(int value) {
    MutexLock lock(mu_);
    while (value_ < value) changed_.Wait(mu_);
    return value_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int value_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_CASE("IncrementsUnderTheLockAreNotLost", "[mutex]") {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 1000; ++i) counter.Increment();
    });
  }
  CHECK(counter.AwaitAtLeast(4000) == 4000);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace monarch
