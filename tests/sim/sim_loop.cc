#include "tests/sim/sim_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/errno_status.h"

namespace monarch::sim {
namespace {

// Turns without a pause; far beyond what any exchange needs.
constexpr size_t kTurnsMax = 10'000;
constexpr int kReadyMax = 256;

}  // namespace

SimLoop::SimLoop(SimClock* clock, Random* random)
    : clock_(clock), random_(random), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  MONARCH_CHECK(epoll_.valid());
}

SimLoop::~SimLoop() {
  tasks_.Close();
  tasks_.TakeAll();
  timers_.Clear();
  const auto doomed = std::exchange(watches_, {});
}

size_t SimLoop::RunUntilIdle() {
  size_t callbacks = 0;
  for (size_t turns = 0; !spins_; ++turns) {
    const size_t ran = Turn();
    if (ran == 0) break;
    callbacks += ran;
    spins_ = turns == kTurnsMax;
  }
  return callbacks;
}

EventLoop::TimerId SimLoop::RunAfter(absl::Duration delay, Task task) {
  return timers_.Add(Now() + std::max(delay, absl::ZeroDuration()), std::move(task));
}

absl::Status SimLoop::WatchFd(int fd, uint32_t events, FdCallback callback) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus("watch fd", errno);
  watches_[fd] = std::make_shared<FdCallback>(std::move(callback));
  return absl::OkStatus();
}

absl::Status SimLoop::UpdateWatch(int fd, uint32_t events) {
  if (!watches_.contains(fd)) return absl::NotFoundError("update watch: not watched");
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) return ErrnoStatus("update watch", errno);
  return absl::OkStatus();
}

void SimLoop::Unwatch(int fd) {
  const auto watch = watches_.find(fd);
  if (watch == watches_.end()) return;
  // Destroyed last: the callback's destructor may come back to this loop.
  const std::shared_ptr<FdCallback> doomed = std::move(watch->second);
  watches_.erase(watch);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void SimLoop::Run() { MONARCH_CHECK(false); }

size_t SimLoop::Turn() {
  size_t callbacks = RunReady();
  const TimerId mark = timers_.Mark();
  while (!tasks_.closed()) {
    Task task = timers_.PopDue(Now(), mark);
    if (!task) break;
    task();
    ++callbacks;
  }
  for (Task& task : tasks_.TakeAll()) {
    task();
    task = nullptr;
    ++callbacks;
  }
  return callbacks;
}

size_t SimLoop::RunReady() {
  if (tasks_.closed()) return 0;
  epoll_event events[kReadyMax];
  const int count = epoll_wait(epoll_.get(), events, kReadyMax, 0);
  std::vector<std::pair<int, uint32_t>> ready;
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const uint32_t what = events[i].events;
    ready.emplace_back(fd, what);
  }
  // The kernel's order is no part of what it promises.
  std::sort(ready.begin(), ready.end());
  for (size_t i = ready.size(); i > 1; --i) std::swap(ready[i - 1], ready[random_->Below(i)]);
  std::vector<std::pair<std::shared_ptr<FdCallback>, std::pair<int, uint32_t>>> batch;
  for (const auto& entry : ready) batch.emplace_back(watches_.at(entry.first), entry);
  size_t callbacks = 0;
  for (const auto& [callback, entry] : batch) {
    const auto current = watches_.find(entry.first);
    if (tasks_.closed() || current == watches_.end() || current->second != callback) continue;
    (*callback)(entry.second);
    ++callbacks;
  }
  return callbacks;
}

}  // namespace monarch::sim
