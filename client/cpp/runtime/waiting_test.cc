#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "client/cpp/runtime/runtime_fixture.h"
#include "client/cpp/runtime/wait_words.h"

namespace monarch {
namespace {

struct Pair {
  explicit Pair(bool relay = false) : cluster(relay), a(cluster.Add()), b(cluster.Add()) {}
  std::shared_ptr<Inbox> Start(const ActorAddress& to, uint64_t sender = kRootActor) {
    auto call = a.OpenCall(sender, 1);
    const CallTarget target = {to, 0};
    CHECK(a.Send(sender, FrameKind::kCall, {&target, 1}, OnePart("x"), call.get()).ok());
    return call;
  }
  Cluster cluster;
  Runtime& a;
  Runtime& b;
};

// Answers when it is let go.
class Gate {
 public:
  explicit Gate(Runtime& runtime)
      : runtime_(runtime), actor_(runtime, runtime.NextActorId(), [this](const Message& m) {
          while (!open_) poll(nullptr, 0, 1);
          MONARCH_CHECK(runtime_.Reply(m, FrameKind::kReply, OnePart("y")).ok());
        }) {}
  ~Gate() { Open(); }
  void Open() { open_ = true; }
  ActorAddress address() const { return actor_.address(); }

 private:
  Runtime& runtime_;
  std::atomic<bool> open_{false};
  TestActor actor_;
};

TEST_CASE("another thread than the one that opened the call can wait for it") {
  Pair pair(GENERATE(false, true));
  Gate gate(pair.b);
  const auto call = pair.Start(gate.address());
  std::thread waiter([&] { MONARCH_CHECK(Next(pair.a, *call).ok()); });
  gate.Open();
  waiter.join();
}

TEST_CASE("a wait ends in time") {
  Pair pair;
  Gate gate(pair.b);
  const auto call = pair.Start(gate.address());
  CHECK(absl::IsDeadlineExceeded(pair.a.Wait(*call, absl::Milliseconds(20))));
  CHECK(absl::IsDeadlineExceeded(pair.a.Wait(*call, absl::ZeroDuration())));
  gate.Open();
  CHECK(pair.a.Wait(*call, absl::InfiniteDuration()).ok());
}

TEST_CASE("a signal ends a wait") {
  Pair pair;
  Gate gate(pair.b);
  const auto call = pair.Start(gate.address());
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  std::atomic<bool> done{false};
  const pthread_t self = pthread_self();
  std::thread interrupter([&] {
    while (!done) {
      pthread_kill(self, SIGUSR1);
      poll(nullptr, 0, 1);
    }
  });
  CHECK(absl::IsCancelled(pair.a.Wait(*call, kTestTimeout)));
  done = true;
  interrupter.join();
}

TEST_CASE("a notifier wakes a thread that sleeps on its word") {
  Pair pair(GENERATE(false, true));
  Gate gate(pair.b);
  const auto notifier = pair.a.MakeNotifier();
  const auto call = pair.Start(gate.address());
  call->SetNotifier(notifier, 42);
  CHECK(absl::IsDeadlineExceeded(pair.a.WaitNotifier(*notifier, -1, absl::Milliseconds(10))));
  gate.Open();
  REQUIRE(pair.a.WaitNotifier(*notifier, -1, kTestTimeout).ok());
  CHECK(notifier->Take() == std::vector<uint64_t>{42});
  CHECK(call->TryPop().has_value());
  std::thread other([&] { pair.a.WakeNotifier(*notifier); });
  CHECK(pair.a.WaitNotifier(*notifier, -1, kTestTimeout).ok());
  other.join();
  CHECK(notifier->Take().empty());
}

TEST_CASE("a notifier wakes a thread that sleeps in epoll") {
  Pair pair(GENERATE(false, true));
  Gate gate(pair.b);
  const auto notifier = pair.a.MakeNotifier();
  const ScopedFd epoll(epoll_create1(EPOLL_CLOEXEC));
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const ScopedFd read_end(pipe_fds[0]);
  const ScopedFd write_end(pipe_fds[1]);
  epoll_event event = {};
  event.events = EPOLLIN;
  REQUIRE(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, read_end.get(), &event) == 0);
  const auto call = pair.Start(gate.address());
  call->SetNotifier(notifier, 7);
  gate.Open();
  REQUIRE(pair.a.WaitNotifier(*notifier, epoll.get(), kTestTimeout).ok());
  CHECK(notifier->Take() == std::vector<uint64_t>{7});
  REQUIRE(write(write_end.get(), "x", 1) == 1);
  CHECK(pair.a.WaitNotifier(*notifier, epoll.get(), kTestTimeout).ok());
  CHECK_FALSE(notifier->has_news());
}

TEST_CASE("a foreign event loop hears through the eventfd") {
  Pair pair;
  Gate gate(pair.b);
  const auto notifier = pair.a.MakeNotifier();
  const auto fd = notifier->EventFd();
  REQUIRE(fd.ok());
  const auto call = pair.Start(gate.address());
  call->SetNotifier(notifier, 7);
  pair.a.AddBellWaiter();
  gate.Open();
  pollfd entry = {*fd, POLLIN, 0};
  CHECK(poll(&entry, 1, 20'000) == 1);
  pair.a.RemoveBellWaiter();
  CHECK(notifier->Take() == std::vector<uint64_t>{7});
  CHECK(poll(&entry, 1, 0) == 0);
}

TEST_CASE("threads without a word can wait, too") {
  auto doorbell = Doorbell::Create();
  REQUIRE(doorbell.ok());
  auto words = std::make_shared<WaitWords>(std::make_shared<Doorbell>(*std::move(doorbell)), 2);
  CHECK(words->ThreadWord() == 1);
  std::atomic<bool> ready{false};
  std::atomic<bool> waiting{false};
  std::thread other([&] {
    MONARCH_CHECK(words->ThreadWord() == kServiceWord);
    MONARCH_CHECK(absl::IsDeadlineExceeded(
        words->SleepUntil([] { return false; }, [] {}, false, absl::Milliseconds(5))));
    MONARCH_CHECK(
        words->SleepUntil([&] { return ready.load(); }, [&] { waiting = true; }, false, kTestTimeout).ok());
  });
  CHECK(Eventually([&] { return waiting.load(); }));
  ready = true;
  words->Wake(kServiceWord);
  other.join();
  // A thread's end gives its word back.
  auto again = std::make_shared<WaitWords>(std::make_shared<Doorbell>(*Doorbell::Create()), 2);
  std::thread([&] { MONARCH_CHECK(again->ThreadWord() == 1); }).join();
  std::thread([&] { MONARCH_CHECK(again->ThreadWord() == 1); }).join();
}

TEST_CASE("a forked child is refused") {
  Pair pair;
  Gate gate(pair.b);
  const auto call = pair.Start(gate.address());
  const pid_t child = fork();
  if (child == 0) {
    bool good = absl::IsFailedPrecondition(pair.a.Wait(*call, absl::ZeroDuration()));
    good = good && absl::IsFailedPrecondition(pair.a.Send(kRootActor, FrameKind::kCall, {}, {}, nullptr));
    good = good && absl::IsFailedPrecondition(pair.a.NextTask(absl::ZeroDuration()).status());
    good = good && pair.a.OpenCall(kRootActor, 1)->finished();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  gate.Open();
  CHECK(Next(pair.a, *call).ok());
}

}  // namespace
}  // namespace monarch
