#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/event_loop.h"
#include "base/loop_queues.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

// Ready fds fetched by one epoll_wait. Too few only costs more calls: the rest comes in the next turn.
constexpr int kEventsPerTurnMax = 64;
// Longest sleep, so that a far deadline fits epoll_wait's int; waking early is harmless.
constexpr absl::Duration kSleepMax = absl::Hours(1);
// The eventfd's key in epoll; watches count from 1.
constexpr uint64_t kWakeKey = 0;

// An event carries the watch's key, never its fd: within one batch an fd can be unwatched, closed, opened
// again and watched anew, and the old event must not reach the new watch. Threading: confined to the loop's
// thread.
struct Watch {
  int fd;
  uint32_t events;
  EventLoop::FdCallback callback;
};

// Threading: as EventLoop says.
class EpollEventLoop final : public EventLoop {
 public:
  EpollEventLoop(ScopedFd epoll, ScopedFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  ~EpollEventLoop() override { DestroyCallbacks(); }

  void Post(Task task) override;
  TimerId RunAfter(absl::Duration delay, Task task) override;
  bool Cancel(TimerId timer) override;
  absl::Status WatchFd(int fd, uint32_t events, FdCallback callback) override;
  absl::Status UpdateWatch(int fd, uint32_t events) override;
  void Unwatch(int fd) override;
  absl::Duration Now() const override;
  bool InLoop() const override { return owner_.load() == std::this_thread::get_id(); }
  void Run() override;
  void Stop() override;

 private:
  enum class State { kNew, kRunning, kEnded };

  void CheckThread() const { MONARCH_CHECK(InLoop() || state_.load() == State::kEnded); }
  void Wake();
  void Turn();
  int SleepMs() const;
  void RunReady(uint64_t key, uint32_t events);
  void RunTimers();
  void RunTasks();
  void DestroyCallbacks();

  // Constant after construction.
  const ScopedFd epoll_;
  const ScopedFd wake_;
  const SystemClock clock_;

  // Synchronises itself.
  TaskQueue tasks_;
  std::atomic<State> state_{State::kNew};
  std::atomic<std::thread::id> owner_{std::this_thread::get_id()};

  // Confined to the loop's thread.
  TimerQueue timers_;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> key_of_fd_;
  uint64_t next_key_ = kWakeKey + 1;
  absl::Duration now_;
};

void EpollEventLoop::Post(Task task) {
  const TaskQueue::Pushed pushed = tasks_.Push(std::move(task));
  // The loop takes all tasks at once and looks again before it sleeps: only the first needs to wake it, and
  // its own thread never does.
  if (pushed == TaskQueue::Pushed::kFirst && !InLoop()) Wake();
}

void EpollEventLoop::Stop() {
  tasks_.Close();
  if (!InLoop()) Wake();
}

void EpollEventLoop::Wake() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so it is readable, which is all that is wanted.
  const ssize_t written = write(wake_.get(), &one, sizeof(one));
  MONARCH_CHECK(written == sizeof(one) || errno == EAGAIN);
}

EventLoop::TimerId EpollEventLoop::RunAfter(absl::Duration delay, Task task) {
  CheckThread();
  return timers_.Add(Now() + std::max(delay, absl::ZeroDuration()), std::move(task));
}

bool EpollEventLoop::Cancel(TimerId timer) {
  CheckThread();
  return timers_.Cancel(timer);
}

absl::Status EpollEventLoop::WatchFd(int fd, uint32_t events, FdCallback callback) {
  CheckThread();
  if (key_of_fd_.contains(fd))
    return absl::AlreadyExistsError(absl::StrCat("watch fd ", fd, ": watched already"));
  const uint64_t key = next_key_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ErrnoStatus(absl::StrCat("watch fd ", fd), errno);
  }
  watches_.emplace(key, std::make_shared<Watch>(Watch{fd, events, std::move(callback)}));
  key_of_fd_.emplace(fd, key);
  return absl::OkStatus();
}

absl::Status EpollEventLoop::UpdateWatch(int fd, uint32_t events) {
  CheckThread();
  const auto key = key_of_fd_.find(fd);
  if (key == key_of_fd_.end())
    return absl::NotFoundError(absl::StrCat("update watch of fd ", fd, ": not watched"));
  Watch& watch = *watches_.at(key->second);
  if (watch.events == events) return absl::OkStatus();
  epoll_event event{};
  event.events = events;
  event.data.u64 = key->second;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    return ErrnoStatus(absl::StrCat("update watch of fd ", fd), errno);
  }
  watch.events = events;
  return absl::OkStatus();
}

void EpollEventLoop::Unwatch(int fd) {
  CheckThread();
  const auto key = key_of_fd_.find(fd);
  if (key == key_of_fd_.end()) return;
  // A failure means that the fd was closed first, and that epoll may go on reporting a number that is
  // another's now.
  MONARCH_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0);
  const auto watch = watches_.find(key->second);
  // Destroyed last: the callback's destructor may come back to this loop.
  const std::shared_ptr<Watch> doomed = std::move(watch->second);
  watches_.erase(watch);
  key_of_fd_.erase(key);
}

absl::Duration EpollEventLoop::Now() const {
  return state_.load() == State::kRunning && InLoop() ? now_ : clock_.Now();
}

void EpollEventLoop::Run() {
  MONARCH_CHECK(state_.load() == State::kNew);
  owner_.store(std::this_thread::get_id());
  now_ = clock_.Now();
  state_.store(State::kRunning);
  while (!tasks_.drained()) Turn();
  DestroyCallbacks();
  state_.store(State::kEnded);
}

void EpollEventLoop::Turn() {
  epoll_event ready[kEventsPerTurnMax];
  int count = epoll_wait(epoll_.get(), ready, kEventsPerTurnMax, SleepMs());
  if (count < 0) {
    MONARCH_CHECK(errno == EINTR);
    count = 0;
  }
  now_ = clock_.Now();
  for (int i = 0; i < count; ++i) RunReady(ready[i].data.u64, ready[i].events);
  RunTimers();
  RunTasks();
}

int EpollEventLoop::SleepMs() const {
  if (!tasks_.empty() || tasks_.closed()) return 0;
  const std::optional<absl::Duration> deadline = timers_.NextDeadline();
  if (!deadline) return -1;
  // Read afresh, else the callbacks' time would be slept on top. Rounded up: a timer is never early, and the
  // loop does not spin through the last millisecond.
  const absl::Duration left = std::clamp(*deadline - clock_.Now(), absl::ZeroDuration(), kSleepMax);
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void EpollEventLoop::RunReady(uint64_t key, uint32_t events) {
  if (key == kWakeKey) {
    uint64_t count;
    const ssize_t got = read(wake_.get(), &count, sizeof(count));
    MONARCH_CHECK(got == sizeof(count) || errno == EAGAIN);
    return;
  }
  if (tasks_.closed()) return;
  const auto found = watches_.find(key);
  if (found == watches_.end()) return;
  // Shared, so that the callback may unwatch itself while it runs.
  const std::shared_ptr<Watch> watch = found->second;
  // An earlier callback of this batch may have narrowed the watch.
  const uint32_t wanted = events & (watch->events | EPOLLERR | EPOLLHUP);
  if (wanted != 0) watch->callback(wanted);
}

void EpollEventLoop::RunTimers() {
  const TimerId mark = timers_.Mark();
  while (!tasks_.closed()) {
    Task task = timers_.PopDue(now_, mark);
    if (!task) return;
    task();
  }
}

void EpollEventLoop::RunTasks() {
  std::deque<Task> batch = tasks_.TakeAll();
  while (!batch.empty()) {
    // Destroyed before the next one runs, as a caller that hands over resources expects.
    Task task = std::move(batch.front());
    batch.pop_front();
    task();
  }
}

void EpollEventLoop::DestroyCallbacks() {
  tasks_.Close();
  tasks_.TakeAll();
  timers_.Clear();
  const auto doomed = std::exchange(watches_, {});
  for (const auto& [key, watch] : doomed) {
    // Only for a loop that outlives its watches; an fd may be gone already.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch->fd, nullptr);
  }
  key_of_fd_.clear();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> MakeEpollEventLoop() {
  ScopedFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus("create epoll", errno);
  ScopedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus("create eventfd of the event loop", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return ErrnoStatus("watch eventfd of the event loop", errno);
  }
  return std::unique_ptr<EventLoop>(std::make_unique<EpollEventLoop>(std::move(epoll), std::move(wake)));
}

}  // namespace monarch
