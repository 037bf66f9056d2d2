#include "base/loop_queues.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace monarch {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

TEST_CASE("TasksComeOutInOrderAndOnlyTheFirstSaysSo", "[loop_queues]") {
  TaskQueue queue;
  std::vector<int> ran;
  CHECK(queue.Push([&] { ran.push_back(1); }) == TaskQueue::Pushed::kFirst);
  CHECK(queue.Push([&] { ran.push_back(2); }) == TaskQueue::Pushed::kBehindOthers);
  for (EventLoop::Task& task : queue.TakeAll()) task();
  CHECK(ran == std::vector<int>{1, 2});
  CHECK(queue.empty());
  CHECK(queue.Push([] {}) == TaskQueue::Pushed::kFirst);
}

TEST_CASE("AClosedQueueKeepsWhatItHasAndRefusesMore", "[loop_queues]") {
  TaskQueue queue;
  queue.Push([] {});
  queue.Close();
  CHECK_FALSE(queue.drained());
  auto resource = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = resource;
  CHECK(queue.Push([resource = std::move(resource)] {}) == TaskQueue::Pushed::kRefused);
  CHECK(watch.expired());
  CHECK(queue.TakeAll().size() == 1);
  CHECK(queue.drained());
}

TEST_CASE("ARefusedTaskMayUseTheQueueWhenItIsDestroyed", "[loop_queues]") {
  TaskQueue queue;
  queue.Close();
  std::shared_ptr<int> poster(new int(0), [&queue](int* p) {
    delete p;
    queue.Push([] {});
  });
  CHECK(queue.Push([poster = std::move(poster)] {}) == TaskQueue::Pushed::kRefused);
}

TEST_CASE("TimersPopByDeadlineThenByAge", "[loop_queues]") {
  TimerQueue timers;
  std::vector<int> ran;
  timers.Add(2 * kSecond, [&] { ran.push_back(3); });
  timers.Add(kSecond, [&] { ran.push_back(1); });
  timers.Add(kSecond, [&] { ran.push_back(2); });
  timers.Add(3 * kSecond, [&] { ran.push_back(4); });
  CHECK(timers.NextDeadline() == kSecond);
  while (EventLoop::Task task = timers.PopDue(2 * kSecond, timers.Mark())) task();
  CHECK(ran == std::vector<int>{1, 2, 3});
  CHECK(timers.NextDeadline() == 3 * kSecond);
}

TEST_CASE("ATimerFromAfterTheMarkWaits", "[loop_queues]") {
  TimerQueue timers;
  const EventLoop::TimerId mark = timers.Mark();
  timers.Add(kSecond, [] {});
  CHECK_FALSE(timers.PopDue(kSecond, mark));
  CHECK(timers.PopDue(kSecond, timers.Mark()));
}

TEST_CASE("CancelIsTrueOnlyForAPendingTimer", "[loop_queues]") {
  TimerQueue timers;
  const EventLoop::TimerId cancelled = timers.Add(kSecond, [] {});
  const EventLoop::TimerId popped = timers.Add(kSecond, [] {});
  CHECK(timers.Cancel(cancelled));
  CHECK_FALSE(timers.Cancel(cancelled));
  CHECK(timers.PopDue(kSecond, timers.Mark()));
  CHECK_FALSE(timers.Cancel(popped));
  CHECK_FALSE(timers.Cancel(12345));
  CHECK(timers.NextDeadline() == std::nullopt);
}

TEST_CASE("ATimersDestructorMayCancelAnother", "[loop_queues]") {
  TimerQueue timers;
  const EventLoop::TimerId other = timers.Add(kSecond, [] {});
  std::shared_ptr<int> canceller(new int(0), [&](int* p) {
    delete p;
    timers.Cancel(other);
  });
  const EventLoop::TimerId first = timers.Add(kSecond, [canceller = std::move(canceller)] {});
  CHECK(timers.Cancel(first));
  CHECK(timers.NextDeadline() == std::nullopt);
}

}  // namespace
}  // namespace monarch
