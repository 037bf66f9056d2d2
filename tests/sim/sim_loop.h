#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/loop_queues.h"
#include "base/scoped_fd.h"
#include "tests/sim/random.h"

namespace monarch::sim {

// A loop in virtual time over real fds, all of whose other ends are in this thread too: what is ready follows
// from what was done, and nothing waits. Ready fds are handled in an order that the seed chooses, as a kernel
// may choose any. Threading: confined to the simulation's thread.
class SimLoop final : public EventLoop {
 public:
  // Both outlive the loop.
  SimLoop(SimClock* clock, Random* random);
  ~SimLoop() override;

  // Turns until nothing is ready, due or posted. Returns how many callbacks ran.
  size_t RunUntilIdle();
  // Something is ready, due or posted again and again, which nobody consumes: it runs no more.
  bool spins() const { return spins_; }
  std::optional<absl::Duration> NextDeadline() const { return timers_.NextDeadline(); }

  void Post(Task task) override { tasks_.Push(std::move(task)); }
  TimerId RunAfter(absl::Duration delay, Task task) override;
  bool Cancel(TimerId timer) override { return timers_.Cancel(timer); }
  absl::Status WatchFd(int fd, uint32_t events, FdCallback callback) override;
  absl::Status UpdateWatch(int fd, uint32_t events) override;
  void Unwatch(int fd) override;
  absl::Duration Now() const override { return clock_->Now(); }
  bool InLoop() const override { return true; }
  // Nobody runs it but RunUntilIdle's caller.
  void Run() override;
  void Stop() override { tasks_.Close(); }
  bool stopped() const { return tasks_.closed(); }

 private:
  size_t Turn();
  size_t RunReady();

  SimClock* const clock_;
  Random* const random_;
  const ScopedFd epoll_;
  TaskQueue tasks_;
  TimerQueue timers_;
  std::map<int, std::shared_ptr<FdCallback>> watches_;
  bool spins_ = false;
};

}  // namespace monarch::sim
