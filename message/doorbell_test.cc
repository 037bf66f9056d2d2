#include "message/doorbell.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace monarch {
namespace {

constexpr uint32_t kWord = 7;
constexpr absl::Duration kLong = absl::Seconds(30);

// What Ring and the like cost between construction and a look.
struct Cost {
  uint64_t wakes_before = doorbell_counts().futex_wakes;
  uint64_t bells_before = doorbell_counts().bell_writes;
  uint64_t wakes() const { return doorbell_counts().futex_wakes - wakes_before; }
  uint64_t bells() const { return doorbell_counts().bell_writes - bells_before; }
};

Doorbell Make() {
  auto doorbell = Doorbell::Create();
  REQUIRE(doorbell.ok());
  return *std::move(doorbell);
}

ScopedFd Dup(int fd) { return ScopedFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

// Also from threads, which must not use the test's assertions.
Doorbell AttachTo(const Doorbell& owner) {
  return Doorbell::Attach(Dup(owner.memfd()), Dup(owner.bell())).value();
}

bool BellRings(const Doorbell& doorbell) {
  pollfd entry = {doorbell.bell(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

TEST_CASE("RingOfARunningWordMakesNoSystemCall") {
  Doorbell owner = Make();
  Doorbell peer = AttachTo(owner);
  const Cost cost;
  peer.Ring(3, kWord, false);
  CHECK(cost.wakes() == 0);
  CHECK(cost.bells() == 0);
  uint64_t news[4];
  CHECK(owner.TakeNews(news));
  CHECK(news[0] == 8);
  CHECK_FALSE(owner.TakeNews(news));
  CHECK(news[0] == 0);
}

TEST_CASE("RingOfASleepingWordIsOneWake") {
  Doorbell owner = Make();
  Doorbell peer = AttachTo(owner);
  owner.PrepareWait(kWord);
  const Cost cost;
  peer.Ring(200, kWord, false);
  peer.Ring(201, kWord, false);
  CHECK(cost.wakes() == 1);
  CHECK(cost.bells() == 0);
  CHECK(owner.HasNews());
  CHECK(owner.CommitWait(kWord, kLong).ok());
  uint64_t news[4];
  CHECK(owner.TakeNews(news));
  CHECK(news[3] == (uint64_t{3} << 8));
}

TEST_CASE("BellRingsOnceForServiceWordForceBellWaitersAndNonsense") {
  Doorbell owner = Make();
  Doorbell peer = AttachTo(owner);
  struct {
    uint32_t word;
    bool force;
    bool waiter;
  } const cases[] = {{kServiceWord, false, false}, {kServiceWord, true, true}, {kWord, true, false},
                     {kWord, false, true},         {kWord, true, true},        {kWaitWords, false, false},
                     {~uint32_t{0}, true, false}};
  for (const auto& c : cases) {
    if (c.waiter) owner.AddBellWaiter();
    CHECK_FALSE(BellRings(owner));
    const Cost cost;
    peer.Ring(0, c.word, c.force);
    CHECK(cost.bells() == 1);
    CHECK(cost.wakes() == 0);
    CHECK(BellRings(owner));
    owner.ClearBell();
    if (c.waiter) owner.RemoveBellWaiter();
  }
}

TEST_CASE("RingOfABitOutOfRangeTouchesNoNews") {
  Doorbell owner = Make();
  owner.Ring(kRingBits, kWord, false);
  owner.Ring(~uint32_t{0}, kWord, false);
  CHECK_FALSE(owner.HasNews());
}

TEST_CASE("FullBellDoesNotBlockTheRinger") {
  Doorbell owner = Make();
  Doorbell peer = AttachTo(owner);
  REQUIRE(fcntl(owner.bell(), F_SETFL, 0) == 0);
  peer = AttachTo(owner);
  REQUIRE(eventfd_write(owner.bell(), ~uint64_t{0} - 1) == 0);
  peer.RingBell();
  CHECK(BellRings(owner));
}

TEST_CASE("WakeRingsTheBellForTheServiceWord") {
  Doorbell owner = Make();
  const Cost cost;
  owner.Wake(kServiceWord);
  owner.Wake(kWaitWords);
  CHECK(cost.bells() == 2);
  owner.PrepareWait(kWord);
  owner.Wake(kWord);
  CHECK(cost.wakes() == 1);
  CHECK(cost.bells() == 2);
}

TEST_CASE("WaitEndsAtItsTimeoutAndLeavesTheWordRunning") {
  Doorbell owner = Make();
  owner.PrepareWait(kWord);
  CHECK(owner.CommitWait(kWord, absl::Milliseconds(1)).code() == absl::StatusCode::kDeadlineExceeded);
  owner.PrepareWait(kWord);
  CHECK(owner.CommitWait(kWord, -absl::InfiniteDuration()).code() == absl::StatusCode::kDeadlineExceeded);
  const Cost cost;
  owner.Wake(kWord);
  CHECK(cost.wakes() == 0);
}

TEST_CASE("CancelledWaitCostsTheRingerNothing") {
  Doorbell owner = Make();
  owner.PrepareWait(kWord);
  owner.CancelWait(kWord);
  const Cost cost;
  owner.Ring(0, kWord, false);
  CHECK(cost.wakes() == 0);
  CHECK(owner.CommitWait(kWord, kLong).ok());
}

std::atomic<int> signals_seen{0};

TEST_CASE("SignalEndsTheWaitAlsoWithRestartingHandlers") {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++signals_seen; };
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  Doorbell owner = Make();
  std::atomic<bool> done{false};
  absl::Status status;
  std::thread sleeper([&] {
    owner.PrepareWait(kWord);
    status = owner.CommitWait(kWord, absl::InfiniteDuration());
    done = true;
  });
  // A signal that comes before the sleep is lost to it, so they come until one is not.
  while (!done) {
    pthread_kill(sleeper.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  sleeper.join();
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(signals_seen > 0);
}

TEST_CASE("ActorsWordIsFoundByHintAndBySearch") {
  Doorbell owner = Make();
  Doorbell peer = AttachTo(owner);
  CHECK(peer.WordOf(42, 0) == kServiceWord);
  owner.RegisterActor(kWaitWords - 1, 42);
  owner.RegisterActor(3, 43);
  CHECK(peer.WordOf(42, 0) == kWaitWords - 1);
  CHECK(peer.WordOf(42, kWaitWords - 1) == kWaitWords - 1);
  CHECK(peer.WordOf(42, 3) == kWaitWords - 1);
  CHECK(peer.WordOf(43, ~uint32_t{0}) == 3);
  CHECK(peer.WordOf(0, 5) == kServiceWord);
  owner.RegisterActor(3, 0);
  CHECK(peer.WordOf(43, 3) == kServiceWord);
}

TEST_CASE("AttachRefusesOtherMemfdsAndBells") {
  Doorbell owner = Make();
  auto small = CreateSealedMemfd("test", 4096);
  REQUIRE(small.ok());
  CHECK(Doorbell::Attach(*std::move(small), Dup(owner.bell())).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(Doorbell::Attach(Dup(owner.bell()), Dup(owner.bell())).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const ScopedFd read_end(ends[0]);
  CHECK(Doorbell::Attach(Dup(owner.memfd()), ScopedFd(ends[1])).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(Doorbell::Attach(Dup(owner.memfd()), ScopedFd()).ok());
}

TEST_CASE("NoWakeUpIsLostWithManyRingersAndOneSleeper") {
  constexpr int kRingers = 4;
  constexpr int kRingsEach = 5000;
  Doorbell owner = Make();
  std::atomic<int> published[kRingers] = {};
  std::vector<std::thread> ringers;
  const Cost cost;
  const uint64_t waits_before = doorbell_counts().futex_waits;
  for (int r = 0; r < kRingers; ++r) {
    ringers.emplace_back([&, r] {
      Doorbell peer = AttachTo(owner);
      for (int i = 0; i < kRingsEach; ++i) {
        published[r].fetch_add(1, std::memory_order_relaxed);
        peer.Ring(static_cast<uint32_t>(r * 64), kWord, false);
      }
    });
  }
  int taken[kRingers] = {};
  int total = 0;
  bool lost = false;
  uint64_t prepared = 0;
  while (total < kRingers * kRingsEach && !lost) {
    owner.PrepareWait(kWord);
    ++prepared;
    if (owner.HasNews()) {
      owner.CancelWait(kWord);
    } else {
      lost = !owner.CommitWait(kWord, kLong).ok();
    }
    uint64_t news[4];
    if (!owner.TakeNews(news)) continue;
    // A news bit that was taken shows all that was published before it was set.
    for (int r = 0; r < kRingers; ++r) {
      if (news[r] == 0) continue;
      const int now = published[r].load();
      total += now - taken[r];
      taken[r] = now;
    }
  }
  for (std::thread& ringer : ringers) ringer.join();
  CHECK_FALSE(lost);
  CHECK(total == kRingers * kRingsEach);
  CHECK(cost.bells() == 0);
  CHECK(cost.wakes() <= prepared);
  CHECK(doorbell_counts().futex_waits - waits_before <= prepared);
}

TEST_CASE("NoBellIsLostForAWaiterInAnEventLoop") {
  constexpr int kRings = 2000;
  Doorbell owner = Make();
  std::atomic<int> published{0};
  std::atomic<int> seen{0};
  std::thread ringer([&] {
    Doorbell peer = AttachTo(owner);
    for (int i = 0; i < kRings; ++i) {
      published.fetch_add(1);
      peer.Ring(1, kWord, false);
      // Each ring meets a waiter that is just about to sleep.
      while (seen.load() <= i) std::this_thread::yield();
    }
  });
  bool lost = false;
  while (seen.load() < kRings) {
    owner.AddBellWaiter();
    if (!owner.HasNews() && !lost) {
      pollfd entry = {owner.bell(), POLLIN, 0};
      lost = poll(&entry, 1, 30'000) != 1;
    }
    owner.RemoveBellWaiter();
    owner.ClearBell();
    uint64_t news[4];
    if (owner.TakeNews(news) || lost) seen.store(published.load());
  }
  ringer.join();
  CHECK_FALSE(lost);
}

TEST_CASE("RingWakesASleeperInAnotherProcess") {
  Doorbell owner = Make();
  const pid_t child = fork();
  if (child == 0) {
    owner.PrepareWait(kWord);
    owner.Ring(0, kServiceWord, false);  // tells the parent, through the bell
    const bool rung = owner.CommitWait(kWord, kLong).ok();
    _exit(rung ? 0 : 1);
  }
  REQUIRE(child > 0);
  pollfd entry = {owner.bell(), POLLIN, 0};
  REQUIRE(poll(&entry, 1, 30'000) == 1);
  const Cost cost;
  owner.Ring(1, kWord, false);
  CHECK(cost.wakes() == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("ADeathWakesWhoSleepsAndMarksTheRing") {
  Doorbell owner = Make();
  Doorbell launcher = Doorbell::AttachPages(Dup(owner.memfd())).value();
  owner.PrepareWait(kWord);
  std::thread sleeper([&owner] { static_cast<void>(owner.CommitWait(kWord, kLong)); });
  launcher.TellPeerDead(70);
  sleeper.join();
  CHECK_FALSE(BellRings(owner));
  uint64_t bits[4];
  CHECK(owner.TakeNews(bits));
  CHECK(bits[1] == 64);
  CHECK(owner.TakePeerDead(bits));
  CHECK(bits[1] == 64);
  CHECK_FALSE(owner.TakePeerDead(bits));
}

TEST_CASE("ADeathWakesOneSleeperTheLastCallerFirst") {
  Doorbell owner = Make();
  Doorbell launcher = Doorbell::AttachPages(Dup(owner.memfd())).value();
  Cost cost;
  launcher.TellPeerDead(1);
  launcher.TellPeerDead(kRingBits);
  CHECK(cost.wakes() == 0);
  owner.PrepareWait(kWord);
  owner.PrepareWait(kWord + 1);
  owner.NoteCaller(1, kWord + 1);
  launcher.TellPeerDead(1);
  CHECK(cost.wakes() == 1);
  CHECK(owner.CommitWait(kWord + 1, kLong).ok());
  CHECK(absl::IsDeadlineExceeded(owner.CommitWait(kWord, absl::Milliseconds(1))));
  // The caller runs, or was never one: any other.
  owner.PrepareWait(kWord);
  launcher.TellPeerDead(1);
  CHECK(owner.CommitWait(kWord, kLong).ok());
  owner.NoteCaller(2, kWaitWords);
  owner.PrepareWait(kWord);
  launcher.TellPeerDead(2);
  CHECK(owner.CommitWait(kWord, kLong).ok());
  CHECK(cost.wakes() == 3);
  CHECK(cost.bells() == 0);
}

TEST_CASE("ActivitiesAreThoseOfActorsWithAWordAndCostNoSystemCall") {
  Doorbell owner = Make();
  Doorbell daemon = Doorbell::AttachPages(Dup(owner.memfd())).value();
  CHECK(daemon.Activities().empty());
  owner.RegisterActor(kWord, 42);
  REQUIRE(daemon.Activities().size() == 1);
  CHECK(daemon.Activities()[0].actor == 42);
  CHECK(daemon.Activities()[0].tid == gettid());
  CHECK(daemon.Activities()[0].began_ns == 0);
  const Cost cost;
  CHECK_FALSE(owner.SetActivity(kWord, 42, "train", 1234));
  CHECK(cost.wakes() + cost.bells() == 0);
  CHECK(daemon.Activities()[0].began_ns == 1234);
  CHECK(daemon.Activities()[0].method == "train");
  CHECK_FALSE(owner.SetActivity(kWord, 42, std::string(2 * kActivityTextMax, 'x'), 1235));
  CHECK(daemon.Activities()[0].method == std::string(kActivityTextMax, 'x'));
  CHECK_FALSE(owner.SetActivity(kWord, 42, "", 0));
  CHECK(daemon.Activities()[0].began_ns == 0);
  CHECK(daemon.Activities()[0].method.empty());
  // Who comes next on that word has nothing to do with the one before.
  CHECK_FALSE(owner.SetActivity(kWord, 42, "train", 1236));
  owner.RegisterActor(kWord, 0);
  CHECK(daemon.Activities().empty());
  owner.RegisterActor(kWord, 43);
  CHECK(daemon.Activities()[0].began_ns == 0);
}

TEST_CASE("AnActorOnAThreadOfAPoolIsSeenWhileItIsAtWork") {
  Doorbell owner = Make();
  Doorbell daemon = Doorbell::AttachPages(Dup(owner.memfd())).value();
  CHECK_FALSE(owner.SetActivity(kWord, 50, "", 0));
  CHECK(daemon.Activities().empty());
  CHECK_FALSE(owner.SetActivity(kWord, 50, "push", 7));
  REQUIRE(daemon.Activities().size() == 1);
  CHECK(daemon.Activities()[0].actor == 50);
  CHECK(daemon.Activities()[0].tid == gettid());
  CHECK(daemon.Activities()[0].method == "push");
  CHECK_FALSE(owner.SetActivity(kWord, 51, "pull", 8));
  REQUIRE(daemon.Activities().size() == 1);
  CHECK(daemon.Activities()[0].actor == 51);
  CHECK_FALSE(owner.SetActivity(kWord, 51, "", 0));
  CHECK(daemon.Activities().empty());
}

TEST_CASE("TheEndOfAHandlerThatIsWatchedIsSaidOnce") {
  Doorbell owner = Make();
  Doorbell daemon = Doorbell::AttachPages(Dup(owner.memfd())).value();
  owner.RegisterActor(kWord, 42);
  CHECK_FALSE(owner.SetActivity(kWord, 42, "train", 1));
  daemon.WatchHandler(daemon.Activities()[0].word);
  CHECK_FALSE(owner.SetActivity(kWord + 1, 43, "train", 1));  // another's
  CHECK(owner.SetActivity(kWord, 42, "", 0));
  CHECK_FALSE(owner.SetActivity(kWord, 42, "train", 2));
  // The next call begins without idleness between.
  daemon.WatchHandler(kWord);
  CHECK(owner.SetActivity(kWord, 42, "train", 3));
  CHECK_FALSE(owner.SetActivity(kWord, 42, "", 0));
  daemon.WatchHandler(kWaitWords);  // of a hostile process: no such word
}

TEST_CASE("AnActivityIsReadWholeWhileItChanges") {
  Doorbell owner = Make();
  Doorbell daemon = Doorbell::AttachPages(Dup(owner.memfd())).value();
  owner.RegisterActor(kWord, 42);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int64_t turn = 1; !done; ++turn)
      static_cast<void>(
          owner.SetActivity(kWord, 42, std::string(kActivityTextMax, turn % 2 == 0 ? 'a' : 'b'), turn));
  });
  bool mixed = false;
  for (int i = 0; i < 10000; ++i) {
    for (const Activity& activity : daemon.Activities()) {
      const char wanted = activity.began_ns % 2 == 0 ? 'a' : 'b';
      mixed = mixed || (activity.began_ns != 0 && activity.method != std::string(kActivityTextMax, wanted));
    }
  }
  done = true;
  writer.join();
  CHECK_FALSE(mixed);
}

}  // namespace
}  // namespace monarch
