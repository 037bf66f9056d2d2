#include "base/loop_queues.h"

namespace monarch {

TaskQueue::Pushed TaskQueue::Push(EventLoop::Task task) {
  MutexLock lock(mu_);
  // A parameter dies after the function's locals, so a refused task is destroyed without the lock.
  if (closed_) return Pushed::kRefused;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
  return tasks_.size() == 1 ? Pushed::kFirst : Pushed::kBehindOthers;
}

std::deque<EventLoop::Task> TaskQueue::TakeAll() {
  MutexLock lock(mu_);
  return std::exchange(tasks_, {});
}

void TaskQueue::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  changed_.NotifyOne();
}

bool TaskQueue::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

bool TaskQueue::empty() const {
  MutexLock lock(mu_);
  return tasks_.empty();
}

bool TaskQueue::drained() const {
  MutexLock lock(mu_);
  return closed_ && tasks_.empty();
}

void TaskQueue::Wait() {
  MutexLock lock(mu_);
  while (tasks_.empty() && !closed_) changed_.Wait(mu_);
}

EventLoop::TimerId TimerQueue::Add(absl::Duration deadline, EventLoop::Task task) {
  const EventLoop::TimerId id = next_id_++;
  timers_.emplace(Key(deadline, id), std::move(task));
  deadlines_.emplace(id, deadline);
  return id;
}

bool TimerQueue::Cancel(EventLoop::TimerId id) {
  const auto deadline = deadlines_.find(id);
  if (deadline == deadlines_.end()) return false;
  const auto timer = timers_.find(Key(deadline->second, id));
  // Destroyed last: the task's destructor may come back to this queue.
  const EventLoop::Task task = std::move(timer->second);
  timers_.erase(timer);
  deadlines_.erase(deadline);
  return true;
}

std::optional<absl::Duration> TimerQueue::NextDeadline() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first.first;
}

bool TimerQueue::HasDue(absl::Duration now) const {
  return !timers_.empty() && timers_.begin()->first.first <= now;
}

EventLoop::Task TimerQueue::PopDue(absl::Duration now, EventLoop::TimerId mark) {
  if (!HasDue(now)) return nullptr;
  const auto first = timers_.begin();
  // A timer added in this turn is not due before this turn's time, so it never hides an older one that is.
  if (first->first.second >= mark) return nullptr;
  EventLoop::Task task = std::move(first->second);
  deadlines_.erase(first->first.second);
  timers_.erase(first);
  return task;
}

void TimerQueue::Clear() {
  while (!timers_.empty()) {
    const auto doomed = std::exchange(timers_, {});
    deadlines_.clear();
  }
}

}  // namespace monarch
