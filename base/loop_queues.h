#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/mutex.h"

namespace monarch {

// The parts of an EventLoop that do not depend on how it waits.

// Tasks posted to a loop, in order.
// Threading: thread-safe.
class TaskQueue {
 public:
  enum class Pushed { kFirst, kBehindOthers, kRefused };

  // Refused (and destroyed here, outside the lock) once closed.
  Pushed Push(EventLoop::Task task);
  // In the order of their posting; the queue is empty afterwards.
  std::deque<EventLoop::Task> TakeAll();
  void Close();
  bool closed() const;
  bool empty() const;
  // Closed, and everything posted before that was taken.
  bool drained() const;
  // Returns when not empty, or closed.
  void Wait();

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<EventLoop::Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// Timers by deadline; equal deadlines in the order in which they were asked for.
// Threading: confined to the loop's thread.
class TimerQueue {
 public:
  EventLoop::TimerId Add(absl::Duration deadline, EventLoop::Task task);
  bool Cancel(EventLoop::TimerId id);
  std::optional<absl::Duration> NextDeadline() const;
  bool HasDue(absl::Duration now) const;

  // Every timer with an id below the mark was asked for before it; a turn runs only those.
  EventLoop::TimerId Mark() const { return next_id_; }
  // An empty task when none is due.
  EventLoop::Task PopDue(absl::Duration now, EventLoop::TimerId mark);
  void Clear();

 private:
  using Key = std::pair<absl::Duration, EventLoop::TimerId>;
  std::map<Key, EventLoop::Task> timers_;
  std::unordered_map<EventLoop::TimerId, absl::Duration> deadlines_;
  EventLoop::TimerId next_id_ = 1;
};

}  // namespace monarch
