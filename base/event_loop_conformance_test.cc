#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "base/sim_event_loop.h"

namespace monarch {
namespace {

// What each implementation brings: a loop, and fds that a test makes ready. Called on the loop's thread.
class EpollRig {
 public:
  EpollRig() : loop_(MakeEpollEventLoop().value()) {}
  EventLoop& loop() { return *loop_; }
  void Destroy() { loop_.reset(); }
  int OpenFd() {
    ScopedFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const int number = fd.get();
    fds_.emplace(number, std::move(fd));
    return number;
  }
  void MakeReadable(int fd) { REQUIRE(eventfd_write(fd, 1) == 0); }
  void Drain(int fd) {
    eventfd_t value;
    REQUIRE(eventfd_read(fd, &value) == 0);
  }

 private:
  std::unique_ptr<EventLoop> loop_;
  std::map<int, ScopedFd> fds_;
};

class SimRig {
 public:
  EventLoop& loop() { return *loop_; }
  void Destroy() { loop_.reset(); }
  int OpenFd() {
    loop_->SetReady(++last_fd_, EPOLLOUT);
    return last_fd_;
  }
  void MakeReadable(int fd) { loop_->SetReady(fd, EPOLLIN | EPOLLOUT); }
  void Drain(int fd) { loop_->SetReady(fd, EPOLLOUT); }

 private:
  SimClock clock_;
  std::unique_ptr<SimEventLoop> loop_ = std::make_unique<SimEventLoop>(&clock_);
  int last_fd_ = 100;
};

using Events = std::vector<int>;

TEMPLATE_TEST_CASE("TasksRunInTheOrderOfTheirPosting", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  Events ran;
  for (int i = 0; i < 3; ++i) rig.loop().Post([&ran, i] { ran.push_back(i); });
  CHECK(ran.empty());
  rig.loop().Stop();
  rig.loop().Run();
  CHECK(ran == Events{0, 1, 2});
}

TEMPLATE_TEST_CASE("NothingRunsInsideTheCallThatAskedForIt", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  rig.MakeReadable(fd);
  Events ran;
  loop.Post([&] {
    loop.Post([&] { ran.push_back(1); });
    loop.RunAfter(absl::ZeroDuration(), [&] { ran.push_back(2); });
    REQUIRE(loop.WatchFd(fd, EPOLLIN,
                         [&](uint32_t) {
                           ran.push_back(3);
                           loop.Unwatch(fd);
                         })
                .ok());
    CHECK(ran.empty());
  });
  loop.RunAfter(absl::Milliseconds(5), [&] { loop.Stop(); });
  loop.Run();
  CHECK(ran.size() == 3);
}

TEMPLATE_TEST_CASE("PostsOfOtherThreadsAllArriveInEachThreadsOrder", "[event_loop]", EpollRig, SimRig) {
  constexpr int kThreads = 4;
  constexpr int kPosts = 500;
  TestType rig;
  EventLoop& loop = rig.loop();
  int total = 0;
  int last[kThreads] = {0, 0, 0, 0};
  bool in_order = true;
  bool in_loop = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 1; i <= kPosts; ++i) {
        loop.Post([&, t, i] {
          in_order = in_order && last[t] == i - 1;
          in_loop = in_loop && loop.InLoop();
          last[t] = i;
          if (++total == kThreads * kPosts) loop.Stop();
        });
      }
    });
  }
  loop.Run();
  for (std::thread& thread : threads) thread.join();
  CHECK(total == kThreads * kPosts);
  CHECK(in_order);
  CHECK(in_loop);
}

TEMPLATE_TEST_CASE("APostWakesASleepingLoop", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  std::atomic<bool> other_in_loop{true};
  std::thread poster;
  loop.Post([&] {
    poster = std::thread([&] {
      other_in_loop = loop.InLoop();
      loop.Post([&] { loop.Stop(); });
    });
  });
  loop.Run();
  poster.join();
  CHECK_FALSE(other_in_loop);
}

TEMPLATE_TEST_CASE("StopFromAnotherThreadEndsARunningLoop", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  std::thread stopper;
  loop.Post([&] { stopper = std::thread([&] { loop.Stop(); }); });
  loop.Run();
  stopper.join();
}

TEMPLATE_TEST_CASE("RunMayBelongToAnotherThreadThanTheMaker", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  CHECK(loop.InLoop());
  bool timer_ran = false;
  loop.RunAfter(absl::Milliseconds(1), [&] {
    timer_ran = loop.InLoop();
    loop.Stop();
  });
  std::thread runner([&] { loop.Run(); });
  runner.join();
  CHECK(timer_ran);
  CHECK_FALSE(loop.InLoop());
  loop.Unwatch(12345);
}

TEMPLATE_TEST_CASE("TimersRunByDeadlineAndNeverEarly", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  Events ran;
  bool early = false;
  loop.Post([&] {
    const absl::Duration start = loop.Now();
    const auto add = [&, start](int ms) {
      loop.RunAfter(absl::Milliseconds(ms), [&, start, ms] {
        early = early || loop.Now() < start + absl::Milliseconds(ms);
        ran.push_back(ms);
      });
    };
    for (const int ms : {9, 3, 6, 0}) add(ms);
    loop.RunAfter(absl::Milliseconds(3), [&] { ran.push_back(4); });
    loop.RunAfter(-absl::Seconds(1), [&] { ran.push_back(1); });
    loop.RunAfter(absl::Milliseconds(10), [&] { loop.Stop(); });
  });
  loop.Run();
  CHECK(ran == Events{0, 1, 3, 4, 6, 9});
  CHECK_FALSE(early);
}

TEMPLATE_TEST_CASE("ATimerThatArmsItselfDoesNotStarveTheRest", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  int ticks = 0;
  EventLoop::TimerId pending = 0;
  // A plain function object, so that it can hand itself on.
  struct Rearm {
    EventLoop& loop;
    int& ticks;
    EventLoop::TimerId& pending;
    void operator()() {
      ++ticks;
      pending = loop.RunAfter(absl::ZeroDuration(), Rearm{loop, ticks, pending});
      if (ticks == 3) loop.Post([this_loop = &loop] { this_loop->Stop(); });
    }
  };
  loop.RunAfter(absl::ZeroDuration(), Rearm{loop, ticks, pending});
  loop.Run();
  CHECK(ticks == 3);
}

TEMPLATE_TEST_CASE("ACancelledTimerDoesNotRun", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  Events ran;
  EventLoop::TimerId first = 0;
  EventLoop::TimerId second = 0;
  loop.Post([&] {
    // Both are due in one turn, and the first takes the second away.
    first = loop.RunAfter(absl::Milliseconds(1), [&] {
      ran.push_back(1);
      CHECK_FALSE(loop.Cancel(first));
      CHECK(loop.Cancel(second));
      CHECK_FALSE(loop.Cancel(second));
    });
    second = loop.RunAfter(absl::Milliseconds(1), [&] { ran.push_back(2); });
    loop.RunAfter(absl::Milliseconds(3), [&] { loop.Stop(); });
  });
  loop.Run();
  CHECK(ran == Events{1});
  CHECK_FALSE(loop.Cancel(first));
}

TEMPLATE_TEST_CASE("ReadinessIsALevel", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  rig.MakeReadable(fd);
  int calls = 0;
  uint32_t seen = 0;
  REQUIRE(loop.WatchFd(fd, EPOLLIN,
                       [&](uint32_t events) {
                         seen |= events;
                         if (++calls < 3) return;
                         rig.Drain(fd);
                         loop.RunAfter(absl::Milliseconds(5), [&] { loop.Stop(); });
                       })
              .ok());
  loop.Run();
  CHECK(calls == 3);
  CHECK(seen == EPOLLIN);
}

TEMPLATE_TEST_CASE("ACallbackMayUnwatchItselfAndKeepRunning", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  rig.MakeReadable(fd);
  int calls = 0;
  auto resource = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = resource;
  int read_after_unwatch = 0;
  REQUIRE(loop.WatchFd(fd, EPOLLIN,
                       [&, resource = std::move(resource)](uint32_t) {
                         ++calls;
                         loop.Unwatch(fd);
                         read_after_unwatch = *resource;
                         loop.Post([&] {
                           CHECK(watch.expired());
                           loop.RunAfter(absl::Milliseconds(2), [&] { loop.Stop(); });
                         });
                       })
              .ok());
  loop.Run();
  CHECK(calls == 1);
  CHECK(read_after_unwatch == 7);
}

TEMPLATE_TEST_CASE("AnEventOfAnUnwatchedFdIsDropped", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int a = rig.OpenFd();
  const int b = rig.OpenFd();
  rig.MakeReadable(a);
  rig.MakeReadable(b);
  int calls = 0;
  // Both are ready in one batch; whichever comes first removes both.
  const auto callback = [&](uint32_t) {
    ++calls;
    loop.Unwatch(a);
    loop.Unwatch(b);
    loop.RunAfter(absl::Milliseconds(2), [&] { loop.Stop(); });
  };
  REQUIRE(loop.WatchFd(a, EPOLLIN, callback).ok());
  REQUIRE(loop.WatchFd(b, EPOLLIN, callback).ok());
  loop.Run();
  CHECK(calls == 1);
}

TEMPLATE_TEST_CASE("AWatchMadeAnewDoesNotGetTheOldWatchsEvent", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int a = rig.OpenFd();
  const int b = rig.OpenFd();
  rig.MakeReadable(a);
  rig.MakeReadable(b);
  bool replaced = false;
  int stale = 0;
  const auto callback = [&](uint32_t) {
    if (replaced) return;
    replaced = true;
    for (const int fd : {a, b}) {
      rig.Drain(fd);
      loop.Unwatch(fd);
      REQUIRE(loop.WatchFd(fd, EPOLLIN, [&](uint32_t) { ++stale; }).ok());
    }
    loop.RunAfter(absl::Milliseconds(2), [&] { loop.Stop(); });
  };
  REQUIRE(loop.WatchFd(a, EPOLLIN, callback).ok());
  REQUIRE(loop.WatchFd(b, EPOLLIN, callback).ok());
  loop.Run();
  CHECK(replaced);
  CHECK(stale == 0);
}

TEMPLATE_TEST_CASE("UpdateWatchInsideTheCallbackChangesWhatIsReported", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  Events seen;
  REQUIRE(loop.WatchFd(fd, EPOLLOUT,
                       [&](uint32_t events) {
                         seen.push_back(static_cast<int>(events));
                         if (events == EPOLLOUT) {
                           rig.MakeReadable(fd);
                           REQUIRE(loop.UpdateWatch(fd, EPOLLIN).ok());
                         } else {
                           REQUIRE(loop.UpdateWatch(fd, 0).ok());
                           loop.RunAfter(absl::Milliseconds(2), [&] { loop.Stop(); });
                         }
                       })
              .ok());
  loop.Run();
  CHECK(seen == Events{EPOLLOUT, EPOLLIN});
}

TEMPLATE_TEST_CASE("WrongWatchesAreErrors", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  CHECK(loop.UpdateWatch(fd, EPOLLIN).code() == absl::StatusCode::kNotFound);
  loop.Unwatch(fd);
  REQUIRE(loop.WatchFd(fd, EPOLLIN, [](uint32_t) {}).ok());
  CHECK(loop.WatchFd(fd, EPOLLIN, [](uint32_t) {}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(loop.WatchFd(-1, EPOLLIN, [](uint32_t) {}).message() == "watch fd -1: Bad file descriptor");
  loop.Unwatch(fd);
  CHECK(loop.WatchFd(fd, EPOLLIN, [](uint32_t) {}).ok());
}

TEMPLATE_TEST_CASE("StopRunsEarlierTasksAndDestroysLaterOnes", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  rig.MakeReadable(fd);
  Events ran;
  auto late = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = late;
  loop.Post([&, late = std::move(late)]() mutable {
    REQUIRE(loop.WatchFd(fd, EPOLLIN, [&](uint32_t) { ran.push_back(-1); }).ok());
    loop.RunAfter(absl::ZeroDuration(), [&] { ran.push_back(-2); });
    loop.Post([&] { ran.push_back(2); });
    loop.Stop();
    loop.Post([&, late = std::move(late)] { ran.push_back(-3); });
    CHECK(watch.expired());
    ran.push_back(0);
  });
  loop.Post([&] { ran.push_back(1); });
  loop.Run();
  CHECK(ran == Events{0, 1, 2});
}

TEMPLATE_TEST_CASE("NoCallbackOutlivesRun", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const int fd = rig.OpenFd();
  auto shared = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = shared;
  loop.RunAfter(absl::Hours(1), [shared] {});
  REQUIRE(loop.WatchFd(fd, EPOLLIN, [shared](uint32_t) {}).ok());
  loop.Post([&loop, shared] { loop.Stop(); });
  shared.reset();
  loop.Run();
  CHECK(watch.expired());
}

TEMPLATE_TEST_CASE("ALoopThatNeverRanDestroysItsCallbacks", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  auto shared = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = shared;
  const int fd = rig.OpenFd();
  rig.loop().Post([shared] {});
  rig.loop().RunAfter(absl::ZeroDuration(), [shared] {});
  REQUIRE(rig.loop().WatchFd(fd, EPOLLIN, [shared](uint32_t) {}).ok());
  shared.reset();
  CHECK_FALSE(watch.expired());
  rig.Destroy();
  CHECK(watch.expired());
}

TEMPLATE_TEST_CASE("TimeStandsStillWithinATurn", "[event_loop]", EpollRig, SimRig) {
  TestType rig;
  EventLoop& loop = rig.loop();
  const SystemClock system;
  absl::Duration first;
  absl::Duration second;
  loop.Post([&] {
    first = loop.Now();
    const absl::Duration until = system.Now() + absl::Milliseconds(2);
    while (system.Now() < until) {
    }
    second = loop.Now();
    loop.Stop();
  });
  loop.Run();
  CHECK(first == second);
}

}  // namespace
}  // namespace monarch
