#include "base/sim_event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace monarch {
namespace {

using Events = std::vector<int>;

TEST_CASE("RunUntilIdleRunsWhatIsDueAndLeavesTime", "[sim_event_loop]") {
  SimClock clock;
  SimEventLoop loop(&clock);
  const absl::Duration start = clock.Now();
  Events ran;
  loop.Post([&] {
    ran.push_back(1);
    loop.Post([&] { ran.push_back(2); });
  });
  loop.RunAfter(absl::Milliseconds(1), [&] { ran.push_back(3); });
  CHECK(loop.RunUntilIdle() == 2);
  CHECK(ran == Events{1, 2});
  CHECK(clock.Now() == start);
  CHECK(loop.NextDeadline() == start + absl::Milliseconds(1));
  CHECK(loop.RunUntilIdle() == 0);
}

TEST_CASE("AdvanceByStopsAtEachDeadlineAndEndsExactly", "[sim_event_loop]") {
  SimClock clock;
  SimEventLoop loop(&clock);
  const absl::Duration start = clock.Now();
  std::vector<absl::Duration> at;
  loop.RunAfter(absl::Seconds(1), [&] {
    at.push_back(loop.Now() - start);
    loop.RunAfter(absl::Seconds(2), [&] { at.push_back(loop.Now() - start); });
  });
  loop.RunAfter(absl::Seconds(5), [&] { at.push_back(loop.Now() - start); });
  loop.AdvanceBy(absl::Seconds(4));
  CHECK(at == std::vector<absl::Duration>{absl::Seconds(1), absl::Seconds(3)});
  CHECK(clock.Now() == start + absl::Seconds(4));
  loop.AdvanceBy(absl::Seconds(1));
  CHECK(at.size() == 3);
}

TEST_CASE("OneTurnServesFdsByNumberThenTimersThenTasks", "[sim_event_loop]") {
  SimClock clock;
  SimEventLoop loop(&clock);
  Events ran;
  loop.Post([&] { ran.push_back(3); });
  loop.RunAfter(absl::ZeroDuration(), [&] { ran.push_back(2); });
  for (const int fd : {11, 10}) {
    loop.SetReady(fd, EPOLLIN);
    REQUIRE(loop.WatchFd(fd, EPOLLIN,
                         [&, fd](uint32_t) {
                           ran.push_back(fd);
                           loop.SetReady(fd, 0);
                         })
                .ok());
  }
  loop.RunUntilIdle();
  CHECK(ran == Events{10, 11, 2, 3});
}

TEST_CASE("AFakeHangUpReachesAWatchOfNothing", "[sim_event_loop]") {
  SimClock clock;
  SimEventLoop loop(&clock);
  uint32_t seen = 0;
  REQUIRE(loop.WatchFd(10, 0,
                       [&](uint32_t events) {
                         seen = events;
                         loop.Unwatch(10);
                       })
              .ok());
  loop.SetReady(10, EPOLLIN);
  CHECK(loop.RunUntilIdle() == 0);
  loop.SetReady(10, EPOLLIN | EPOLLHUP);
  CHECK(loop.RunUntilIdle() == 1);
  CHECK(seen == EPOLLHUP);
}

TEST_CASE("TwoLoopsOnOneClockAlternateByDeadline", "[sim_event_loop]") {
  SimClock clock;
  SimEventLoop a(&clock);
  SimEventLoop b(&clock);
  Events ran;
  a.RunAfter(absl::Seconds(1), [&] {
    ran.push_back(1);
    b.Post([&] { ran.push_back(2); });
  });
  b.RunAfter(absl::Seconds(2), [&] { ran.push_back(3); });
  while (a.NextDeadline() || b.NextDeadline()) {
    const absl::Duration next = std::min(a.NextDeadline().value_or(absl::InfiniteDuration()),
                                         b.NextDeadline().value_or(absl::InfiniteDuration()));
    clock.Advance(next - clock.Now());
    while (a.RunUntilIdle() + b.RunUntilIdle() > 0) {
    }
  }
  CHECK(ran == Events{1, 2, 3});
}

TEST_CASE("RunJumpsToDeadlinesWithoutWaiting", "[sim_event_loop]") {
  SimClock clock;
  SimEventLoop loop(&clock);
  const absl::Duration start = clock.Now();
  loop.RunAfter(absl::Hours(1000), [&] { loop.Stop(); });
  loop.Run();
  CHECK(clock.Now() == start + absl::Hours(1000));
}

}  // namespace
}  // namespace monarch
