#include "base/sim_event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"

namespace monarch {
namespace {

// Turns without a pause before RunUntilIdle takes the test for broken; far beyond what a real exchange needs.
constexpr size_t kTurnsMax = 1'000'000;

}  // namespace

SimEventLoop::SimEventLoop(SimClock* clock) : clock_(clock) {}

SimEventLoop::~SimEventLoop() { DestroyCallbacks(); }

void SimEventLoop::CheckThread() const { MONARCH_CHECK(InLoop() || ended_.load()); }

size_t SimEventLoop::RunUntilIdle() {
  CheckThread();
  MONARCH_CHECK(!in_turn_);
  size_t callbacks = 0;
  for (size_t turns = 0; !IsIdle(); ++turns) {
    MONARCH_CHECK(turns < kTurnsMax);
    callbacks += Turn();
  }
  return callbacks;
}

void SimEventLoop::AdvanceBy(absl::Duration by) {
  const absl::Duration end = clock_->Now() + by;
  RunUntilIdle();
  for (auto next = NextDeadline(); next && *next <= end && !tasks_.closed(); next = NextDeadline()) {
    clock_->Advance(std::max(*next - clock_->Now(), absl::ZeroDuration()));
    RunUntilIdle();
  }
  // A callback may have moved the clock itself.
  clock_->Advance(std::max(end - clock_->Now(), absl::ZeroDuration()));
}

void SimEventLoop::SetReady(int fd, uint32_t events) {
  CheckThread();
  ready_[fd] = events;
}

void SimEventLoop::Post(Task task) { tasks_.Push(std::move(task)); }

EventLoop::TimerId SimEventLoop::RunAfter(absl::Duration delay, Task task) {
  CheckThread();
  return timers_.Add(Now() + std::max(delay, absl::ZeroDuration()), std::move(task));
}

bool SimEventLoop::Cancel(TimerId timer) {
  CheckThread();
  return timers_.Cancel(timer);
}

absl::Status SimEventLoop::WatchFd(int fd, uint32_t events, FdCallback callback) {
  CheckThread();
  if (fd < 0) return ErrnoStatus(absl::StrCat("watch fd ", fd), EBADF);
  if (watches_.contains(fd))
    return absl::AlreadyExistsError(absl::StrCat("watch fd ", fd, ": watched already"));
  watches_.emplace(fd, std::make_shared<Watch>(Watch{events, std::move(callback)}));
  return absl::OkStatus();
}

absl::Status SimEventLoop::UpdateWatch(int fd, uint32_t events) {
  CheckThread();
  const auto watch = watches_.find(fd);
  if (watch == watches_.end())
    return absl::NotFoundError(absl::StrCat("update watch of fd ", fd, ": not watched"));
  watch->second->events = events;
  return absl::OkStatus();
}

void SimEventLoop::Unwatch(int fd) {
  CheckThread();
  const auto watch = watches_.find(fd);
  if (watch == watches_.end()) return;
  // Destroyed last: the callback's destructor may come back to this loop.
  const std::shared_ptr<Watch> doomed = std::move(watch->second);
  watches_.erase(watch);
}

absl::Duration SimEventLoop::Now() const { return in_turn_ && InLoop() ? now_ : clock_->Now(); }

void SimEventLoop::Run() {
  MONARCH_CHECK(!ended_.load() && !in_turn_);
  owner_.store(std::this_thread::get_id());
  while (!tasks_.drained()) {
    RunUntilIdle();
    if (tasks_.closed()) continue;
    const std::optional<absl::Duration> next = NextDeadline();
    if (next && *next != absl::InfiniteDuration()) {
      clock_->Advance(std::max(*next - clock_->Now(), absl::ZeroDuration()));
    } else {
      tasks_.Wait();
    }
  }
  DestroyCallbacks();
  ended_.store(true);
}

size_t SimEventLoop::Turn() {
  in_turn_ = true;
  now_ = clock_->Now();
  const size_t callbacks = RunReady() + RunTimers() + RunTasks();
  in_turn_ = false;
  return callbacks;
}

size_t SimEventLoop::RunReady() {
  // Fixed before the first callback, as epoll_wait does; a fd watched anew meanwhile is another watch.
  std::vector<std::pair<int, std::shared_ptr<Watch>>> batch;
  for (const auto& [fd, watch] : watches_) {
    if (ReadyOf(fd, *watch) != 0) batch.emplace_back(fd, watch);
  }
  size_t callbacks = 0;
  for (const auto& [fd, watch] : batch) {
    if (tasks_.closed()) break;
    const auto current = watches_.find(fd);
    if (current == watches_.end() || current->second != watch) continue;
    const uint32_t events = ReadyOf(fd, *watch);
    if (events == 0) continue;
    watch->callback(events);
    ++callbacks;
  }
  return callbacks;
}

size_t SimEventLoop::RunTimers() {
  const TimerId mark = timers_.Mark();
  size_t callbacks = 0;
  while (!tasks_.closed()) {
    Task task = timers_.PopDue(now_, mark);
    if (!task) break;
    task();
    ++callbacks;
  }
  return callbacks;
}

size_t SimEventLoop::RunTasks() {
  std::deque<Task> batch = tasks_.TakeAll();
  const size_t callbacks = batch.size();
  while (!batch.empty()) {
    Task task = std::move(batch.front());
    batch.pop_front();
    task();
  }
  return callbacks;
}

uint32_t SimEventLoop::ReadyOf(int fd, const Watch& watch) const {
  const auto ready = ready_.find(fd);
  return ready == ready_.end() ? 0 : ready->second & (watch.events | EPOLLERR | EPOLLHUP);
}

bool SimEventLoop::IsIdle() const {
  if (!tasks_.empty()) return false;
  if (tasks_.closed()) return true;
  if (timers_.HasDue(clock_->Now())) return false;
  return std::none_of(watches_.begin(), watches_.end(),
                      [this](const auto& entry) { return ReadyOf(entry.first, *entry.second) != 0; });
}

void SimEventLoop::DestroyCallbacks() {
  tasks_.Close();
  tasks_.TakeAll();
  timers_.Clear();
  const auto doomed = std::exchange(watches_, {});
}

}  // namespace monarch
