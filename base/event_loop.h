#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace monarch {

// One thread's loop: tasks, timers and readiness of file descriptors. Callbacks never run inline in the call
// that asked for them. Threading: Post, Stop and InLoop from any thread; everything else on the loop's thread
// (checked): the one that made the loop until Run, then the one that called Run. After Run has returned it
// may be any one thread.
class EventLoop {
 public:
  using Task = absl::AnyInvocable<void()>;
  using FdCallback = absl::AnyInvocable<void(uint32_t epoll_events)>;
  using TimerId = uint64_t;

  virtual ~EventLoop() = default;

  // Runs `task` on the loop, after what was posted before. After Stop: destroyed without being run, in this
  // call.
  virtual void Post(Task task) = 0;
  // Once, not before `delay` has passed since Now(); less than zero counts as zero. Equal deadlines run in
  // the order in which they were asked for. A timer asked for by a timer runs in a later turn.
  virtual TimerId RunAfter(absl::Duration delay, Task task) = 0;
  // False if it has run, or was cancelled.
  virtual bool Cancel(TimerId timer) = 0;

  // Level-triggered; `events` as for epoll (EPOLLIN, EPOLLOUT). One watch per fd; the fd stays the caller's,
  // who unwatches before closing. UpdateWatch and Unwatch may be called inside the callback; after Unwatch it
  // is not called again, not even for an event that is already known. AlreadyExists: the fd is watched.
  // UpdateWatch of an fd without a watch: NotFound; Unwatch: nothing happens.
  virtual absl::Status WatchFd(int fd, uint32_t events, FdCallback callback) = 0;
  virtual absl::Status UpdateWatch(int fd, uint32_t events) = 0;
  virtual void Unwatch(int fd) = 0;

  // Time at the start of this turn; outside Run, the time.
  virtual absl::Duration Now() const = 0;
  virtual bool InLoop() const = 0;

  // Once. Runs until Stop; the calling thread is the loop's. When it returns, every callback has been
  // destroyed.
  virtual void Run() = 0;
  // Tasks posted before it still run, timers and fd callbacks do not. Before Run: Run returns after those
  // tasks.
  virtual void Stop() = 0;
};

// epoll and an eventfd.
absl::StatusOr<std::unique_ptr<EventLoop>> MakeEpollEventLoop();

}  // namespace monarch
