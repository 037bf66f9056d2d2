#include "message/lifeline.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "message/doorbell.h"

namespace monarch {
namespace {

constexpr int kLongMs = 30'000;

// Ordered values of type T from any thread or process to another.
template <typename T>
class Channel {
 public:
  Channel() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
  }
  void Send(T value) const {
    if (write(write_.get(), &value, sizeof(value)) != sizeof(value)) std::abort();
  }
  std::optional<T> Receive(int timeout_ms = kLongMs) const {
    pollfd entry = {read_.get(), POLLIN, 0};
    if (poll(&entry, 1, timeout_ms) != 1) return std::nullopt;
    T value;
    if (read(read_.get(), &value, sizeof(value)) != sizeof(value)) return std::nullopt;
    return value;
  }

 private:
  ScopedFd read_;
  ScopedFd write_;
};

// A forked process that runs `body` and, should that return, ends with its result. Killed and reaped at the
// end.
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    const pid_t parent = getpid();
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    _exit(body());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { Reap(); }
  void Kill() const { REQUIRE(kill(pid_, SIGKILL) == 0); }
  bool Running() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
  void Reap() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

Doorbell MakeDoorbell() {
  auto doorbell = Doorbell::Create();
  REQUIRE(doorbell.ok());
  return *std::move(doorbell);
}

ScopedFd Memfd(const Doorbell& doorbell) { return ScopedFd(fcntl(doorbell.memfd(), F_DUPFD_CLOEXEC, 3)); }

std::atomic_ref<uint32_t> LifelineWord(const Doorbell& doorbell) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(doorbell.lifeline_page()));
}

// A watcher whose notices come through a channel.
struct Watch {
  Channel<uint64_t> died;
  std::unique_ptr<LifelineWatcher> watcher;
  Watch() {
    auto created = LifelineWatcher::Create([this](uint64_t key) { died.Send(key); });
    REQUIRE(created.ok());
    watcher = *std::move(created);
  }
};

// What a child does: holds the life-line, says so, and goes on with `then`.
std::function<int()> Holder(const Doorbell& doorbell, const Channel<char>& ready, std::function<int()> then) {
  return [&doorbell, &ready, then = std::move(then)] {
    if (!HoldLifeline(doorbell.lifeline_page()).ok()) return 1;
    ready.Send('r');
    return then();
  };
}

int WaitForEver() {
  while (true) pause();
}

TEST_CASE("KilledProcessIsToldOnce") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, WaitForEver));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(5, Memfd(doorbell)).ok());
  CHECK_FALSE(watch.died.Receive(0));
  child.Kill();
  CHECK(watch.died.Receive() == 5);
  child.Reap();
  CHECK((LifelineWord(doorbell).load() & FUTEX_OWNER_DIED) != 0);
  watch.watcher.reset();
  CHECK_FALSE(watch.died.Receive(0));
}

TEST_CASE("AnAbandonedLifelineIsToldWhileItsProcessStillRuns") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Channel<char> go;
  Child child(Holder(doorbell, ready, [&] {
    if (!go.Receive()) return 1;
    AbandonLifeline(doorbell.lifeline_page(), SIGABRT);
    return WaitForEver();
  }));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(5, Memfd(doorbell)).ok());
  CHECK(AbandonedBy(doorbell.lifeline_page()) == 0);
  go.Send('g');
  CHECK(watch.died.Receive() == 5);
  CHECK(AbandonedBy(doorbell.lifeline_page()) == SIGABRT);
  // Its true end is no second one.
  child.Kill();
  child.Reap();
  CHECK_FALSE(watch.died.Receive(0));
}

TEST_CASE("KilledProcessWithMuchMemoryIsTold") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, [&ready] {
    constexpr size_t kBytes = size_t{200} << 20;
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return 1;
    ready.Send('m');
    return WaitForEver();
  }));
  REQUIRE(ready.Receive() == 'r');
  REQUIRE(ready.Receive() == 'm');
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  child.Kill();
  CHECK(watch.died.Receive() == 1);
}

TEST_CASE("NormalExitIsTold") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Channel<char> go;
  Child child(Holder(doorbell, ready, [&go] { return go.Receive() ? 0 : 1; }));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  CHECK_FALSE(watch.died.Receive(0));
  go.Send('g');
  CHECK(watch.died.Receive() == 1);
}

TEST_CASE("ExecIsToldWhileTheProcessLivesOn") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Channel<char> go;
  // cat keeps running until the write end of its input is closed.
  int input[2];
  REQUIRE(pipe2(input, O_CLOEXEC) == 0);
  const ScopedFd input_read(input[0]);
  ScopedFd input_write(input[1]);
  Child child(Holder(doorbell, ready, [&] {
    if (!go.Receive()) return 1;
    dup2(input_read.get(), 0);
    execl("/bin/cat", "cat", nullptr);
    return 1;
  }));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  go.Send('g');
  CHECK(watch.died.Receive() == 1);
  CHECK(child.Running());
}

TEST_CASE("DeathBeforeTheWatchIsToldAtOnce") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, [] { return 0; }));
  REQUIRE(ready.Receive());
  child.Reap();
  Watch watch;
  REQUIRE(watch.watcher->Watch(9, Memfd(doorbell)).ok());
  CHECK(watch.died.Receive() == 9);
}

TEST_CASE("LifelineThatNobodyHoldsIsToldAtOnceAndLeftAlone") {
  Doorbell doorbell = MakeDoorbell();
  Watch watch;
  REQUIRE(watch.watcher->Watch(9, Memfd(doorbell)).ok());
  CHECK(watch.died.Receive() == 9);
  CHECK(LifelineWord(doorbell).load() == 0);
}

TEST_CASE("EndOfTheHoldingThreadIsToldInItsLivingProcess") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Channel<char> go;
  std::thread holder([&] {
    if (!HoldLifeline(doorbell.lifeline_page()).ok()) std::abort();
    ready.Send('r');
    go.Receive();
  });
  REQUIRE(ready.Receive());
  CHECK(HoldLifeline(doorbell.lifeline_page()).code() == absl::StatusCode::kFailedPrecondition);
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  go.Send('g');
  CHECK(watch.died.Receive() == 1);
  holder.join();
  CHECK(HoldLifeline(doorbell.lifeline_page()).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("WordThatNoLivingOwnerCouldLeaveIsADeath") {
  const uint32_t garbage = GENERATE(0u, uint32_t{FUTEX_WAITERS}, 77u, ~0u, uint32_t{FUTEX_OWNER_DIED});
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, WaitForEver));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  while ((LifelineWord(doorbell).load() & FUTEX_WAITERS) == 0) std::this_thread::yield();
  LifelineWord(doorbell).store(garbage);
  // A second life-line makes the watcher look at all of them.
  Doorbell other = MakeDoorbell();
  REQUIRE(watch.watcher->Watch(2, Memfd(other)).ok());
  std::vector<uint64_t> told = {watch.died.Receive().value_or(0), watch.died.Receive().value_or(0)};
  std::sort(told.begin(), told.end());
  CHECK(told == std::vector<uint64_t>{1, 2});
}

TEST_CASE("WaitersFlagThatWasTakenAwayIsSetAgain") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, WaitForEver));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  while ((LifelineWord(doorbell).load() & FUTEX_WAITERS) == 0) std::this_thread::yield();
  LifelineWord(doorbell).fetch_and(~uint32_t{FUTEX_WAITERS});
  Doorbell other = MakeDoorbell();
  REQUIRE(watch.watcher->Watch(2, Memfd(other)).ok());
  CHECK(watch.died.Receive() == 2);
  while ((LifelineWord(doorbell).load() & FUTEX_WAITERS) == 0) std::this_thread::yield();
  child.Kill();
  CHECK(watch.died.Receive() == 1);
}

TEST_CASE("UnwatchedDeathIsNotTold") {
  Doorbell one = MakeDoorbell();
  Doorbell two = MakeDoorbell();
  Channel<char> ready;
  Child first(Holder(one, ready, WaitForEver));
  Child second(Holder(two, ready, WaitForEver));
  REQUIRE(ready.Receive());
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(one)).ok());
  REQUIRE(watch.watcher->Watch(2, Memfd(two)).ok());
  watch.watcher->Unwatch(1);
  watch.watcher->Unwatch(1);
  watch.watcher->Unwatch(3);
  first.Kill();
  first.Reap();
  second.Kill();
  CHECK(watch.died.Receive() == 2);
  watch.watcher.reset();
  CHECK_FALSE(watch.died.Receive(0));
}

TEST_CASE("KeyInUseIsRefusedAndFreeAfterwards") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, WaitForEver));
  REQUIRE(ready.Receive());
  Watch watch;
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  CHECK(watch.watcher->Watch(1, Memfd(doorbell)).code() == absl::StatusCode::kAlreadyExists);
  watch.watcher->Unwatch(1);
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  child.Kill();
  CHECK(watch.died.Receive() == 1);
  REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  CHECK(watch.died.Receive() == 1);
}

TEST_CASE("WatchRefusesWhatIsNoDoorbell") {
  Watch watch;
  auto small = CreateSealedMemfd("test", 4096);
  REQUIRE(small.ok());
  CHECK(watch.watcher->Watch(1, *std::move(small)).code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(watch.watcher->Watch(1, ScopedFd()).ok());
}

TEST_CASE("MoreLifelinesThanOneThreadTakesAreAllTold") {
  constexpr size_t kCount = 300;
  std::vector<Doorbell> doorbells;
  for (size_t i = 0; i < kCount; ++i) doorbells.push_back(MakeDoorbell());
  Channel<char> ready;
  // The thread sanitizer knows of at most 64 locks that one thread holds.
  constexpr size_t kHeldByOne = 50;
  std::vector<std::unique_ptr<Child>> children;
  for (size_t first = 0; first < kCount; first += kHeldByOne) {
    children.push_back(std::make_unique<Child>([&, first] {
      for (size_t i = first; i < first + kHeldByOne; ++i) {
        if (!HoldLifeline(doorbells[i].lifeline_page()).ok()) return 1;
      }
      ready.Send('r');
      return WaitForEver();
    }));
    REQUIRE(ready.Receive());
  }
  Watch watch;
  for (size_t i = 0; i < kCount; ++i) REQUIRE(watch.watcher->Watch(i, Memfd(doorbells[i])).ok());
  watch.watcher->Unwatch(100);
  for (const auto& child : children) child->Kill();
  std::vector<uint64_t> told;
  for (size_t i = 0; i + 1 < kCount; ++i) {
    const auto key = watch.died.Receive();
    REQUIRE(key);
    told.push_back(*key);
  }
  std::sort(told.begin(), told.end());
  std::vector<uint64_t> expected(kCount);
  std::iota(expected.begin(), expected.end(), 0);
  expected.erase(expected.begin() + 100);
  CHECK(told == expected);
}

TEST_CASE("CallbackMayWatchAndUnwatch") {
  Doorbell free_lifeline = MakeDoorbell();
  Channel<uint64_t> died;
  std::unique_ptr<LifelineWatcher> watcher;
  auto created = LifelineWatcher::Create([&](uint64_t key) {
    watcher->Unwatch(key);
    if (key < 10 && !watcher->Watch(key + 1, Memfd(free_lifeline)).ok()) std::abort();
    died.Send(key);
  });
  REQUIRE(created.ok());
  watcher = *std::move(created);
  REQUIRE(watcher->Watch(1, Memfd(free_lifeline)).ok());
  for (uint64_t key = 1; key <= 10; ++key) CHECK(died.Receive() == key);
}

TEST_CASE("WatcherThreadsTakeNoSignal") {
  Doorbell doorbell = MakeDoorbell();
  Channel<int> blocked;
  auto created = LifelineWatcher::Create([&](uint64_t) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked.Send(sigismember(&mask, SIGINT) + sigismember(&mask, SIGTERM) + sigismember(&mask, SIGCHLD));
  });
  REQUIRE(created.ok());
  REQUIRE((*created)->Watch(1, Memfd(doorbell)).ok());
  CHECK(blocked.Receive() == 3);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  CHECK(sigismember(&mask, SIGINT) == 0);
}

TEST_CASE("DestroyingAWatcherOfTheLivingEndsItsSleep") {
  Doorbell doorbell = MakeDoorbell();
  Channel<char> ready;
  Child child(Holder(doorbell, ready, WaitForEver));
  REQUIRE(ready.Receive());
  {
    Watch watch;
    REQUIRE(watch.watcher->Watch(1, Memfd(doorbell)).ok());
  }
  CHECK(child.Running());
}

}  // namespace
}  // namespace monarch
