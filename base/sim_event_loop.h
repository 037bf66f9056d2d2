#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/loop_queues.h"

namespace monarch {

// A loop under a test's control: time is the SimClock's, an fd is any number and is ready when the test says
// so. The order of callbacks depends on nothing else: in a turn, ready fds by number, due timers by deadline,
// then tasks. Several loops may share a clock; whoever drives them advances to the earliest NextDeadline().
// Threading: as EventLoop says; SetReady and the Run... and Advance... calls on the loop's thread.
class SimEventLoop final : public EventLoop {
 public:
  // `clock` outlives the loop.
  explicit SimEventLoop(SimClock* clock);
  ~SimEventLoop() override;

  // Turns until nothing is ready, due or posted, without moving the clock. Returns how many callbacks ran. A
  // test bug (an fd whose readiness nobody consumes) aborts instead of turning for ever.
  size_t RunUntilIdle();
  // Moves the clock by `by`, stopping at each deadline on the way to run what is due there until idle.
  void AdvanceBy(absl::Duration by);
  std::optional<absl::Duration> NextDeadline() const { return timers_.NextDeadline(); }

  // The state of a fake fd, watched or not, from now on: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR; 0 for none.
  // It stays so until set anew, as a level does.
  void SetReady(int fd, uint32_t events);

  void Post(Task task) override;
  TimerId RunAfter(absl::Duration delay, Task task) override;
  bool Cancel(TimerId timer) override;
  absl::Status WatchFd(int fd, uint32_t events, FdCallback callback) override;
  absl::Status UpdateWatch(int fd, uint32_t events) override;
  void Unwatch(int fd) override;
  absl::Duration Now() const override;
  bool InLoop() const override { return owner_.load() == std::this_thread::get_id(); }
  // Whenever idle, moves the clock to the next deadline at once; without one, waits for a Post of another
  // thread.
  void Run() override;
  void Stop() override { tasks_.Close(); }

 private:
  struct Watch {
    uint32_t events;
    FdCallback callback;
  };

  void CheckThread() const;
  size_t Turn();
  size_t RunReady();
  size_t RunTimers();
  size_t RunTasks();
  uint32_t ReadyOf(int fd, const Watch& watch) const;
  bool IsIdle() const;
  void DestroyCallbacks();

  // Constant after construction.
  SimClock* const clock_;

  // Synchronises itself.
  TaskQueue tasks_;
  std::atomic<std::thread::id> owner_{std::this_thread::get_id()};
  std::atomic<bool> ended_{false};

  // Confined to the loop's thread.
  TimerQueue timers_;
  std::map<int, std::shared_ptr<Watch>> watches_;
  std::map<int, uint32_t> ready_;
  absl::Duration now_;
  bool in_turn_ = false;
};

}  // namespace monarch
