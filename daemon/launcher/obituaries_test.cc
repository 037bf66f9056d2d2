#include "daemon/launcher/obituaries.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>
#include <tuple>

#include "message/lifeline.h"

namespace monarch {
namespace {

const HostId kHost = HostId::Random();
const ProcAddress kVictim = {kHost, 5, 1};
const ProcAddress kOther = {kHost, 6, 1};

ScopedFd Dup(int fd) { return ScopedFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

struct Fixture {
  std::unique_ptr<Obituaries> obituaries = Obituaries::Create().value();
  Doorbell victim = Doorbell::Create().value();
  Doorbell other = Doorbell::Create().value();
  DeathBoardView board = DeathBoardView::Attach(Dup(obituaries->board())).value();

  Fixture() {
    REQUIRE(obituaries->Add(kVictim, Dup(victim.memfd())).ok());
    REQUIRE(obituaries->Add(kOther, Dup(other.memfd())).ok());
    obituaries->Link(kVictim, 1, kOther, 70);
  }
  bool OtherIsTold() {
    uint64_t bits[kRingBits / 64];
    return other.TakePeerDead(bits) && bits[1] == 64 && other.TakeNews(bits);
  }
};

// A child that has ended as `end` says and is not reaped.
pid_t Ended(int signal, int code) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (signal != 0) raise(signal);
    _exit(code);
  }
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  return pid;
}

void Reap(pid_t pid) { REQUIRE(waitpid(pid, nullptr, 0) == pid); }

TEST_CASE("ALifelineTellsTheCauseToWhoHasARing") {
  Fixture f;
  const auto [signal, code, word] = GENERATE(std::tuple{SIGKILL, 0, SIGKILL}, std::tuple{0, 7, 7 << 8});
  const pid_t pid = Ended(signal, code);
  f.other.PrepareWait(9);
  std::thread sleeper([&f] { static_cast<void>(f.other.CommitWait(9, absl::Seconds(30))); });
  f.obituaries->Watch(1, kVictim, pid);
  f.obituaries->LifelineFired(1);
  sleeper.join();
  CHECK(f.board.EndOf(kVictim) == word);
  CHECK(f.OtherIsTold());
  // Once.
  f.obituaries->Died(kVictim, ExitStatus{0, SIGKILL, false});
  CHECK_FALSE(f.OtherIsTold());
  CHECK(f.board.EndOf(kVictim) == word);
  Reap(pid);
}

TEST_CASE("AWorkerThatSpoilsItsOwnLifelineIsNotCalledDead") {
  Fixture f;
  f.obituaries->Watch(1, kVictim, getpid());
  f.obituaries->LifelineFired(1);
  CHECK_FALSE(f.board.EndOf(kVictim).has_value());
  CHECK_FALSE(f.OtherIsTold());
}

TEST_CASE("AWorkerThatSaysOfWhatItDiesIsBelieved") {
  Fixture f;
  REQUIRE(HoldLifeline(f.victim.lifeline_page()).ok());
  CHECK_FALSE(f.obituaries->Announced(kVictim).known());
  AbandonLifeline(f.victim.lifeline_page(), SIGSEGV);
  CHECK(f.obituaries->Announced(kVictim) == ExitStatus{0, SIGSEGV, false});
  // It still runs: what the kernel has of it is no cause yet.
  f.obituaries->Watch(1, kVictim, getpid());
  f.obituaries->LifelineFired(1);
  CHECK(f.board.EndOf(kVictim) == SIGSEGV);
  CHECK(f.OtherIsTold());
  AbandonLifeline(f.victim.lifeline_page(), 4711);
  CHECK_FALSE(f.obituaries->Announced(kVictim).known());
}

TEST_CASE("ANumberThatMayBeReapedIsNotLookedUp") {
  Fixture f;
  const pid_t pid = Ended(SIGKILL, 0);
  f.obituaries->Watch(1, kVictim, pid);
  f.obituaries->Unwatch(1);
  f.obituaries->LifelineFired(1);
  CHECK_FALSE(f.board.EndOf(kVictim).has_value());
  // The reaped status is told in its place.
  f.obituaries->Died(kVictim, ExitStatus{0, SIGSEGV, false});
  CHECK(f.board.EndOf(kVictim) == SIGSEGV);
  CHECK(f.OtherIsTold());
  Reap(pid);
}

TEST_CASE("AStopIsLeftToTheDaemon") {
  Fixture f;
  f.obituaries->SetStopping(kVictim);
  f.obituaries->Died(kVictim, ExitStatus{0, SIGKILL, false});
  CHECK_FALSE(f.board.EndOf(kVictim).has_value());
  f.obituaries->SetAllStopping();
  f.obituaries->Died(kOther, ExitStatus{0, SIGKILL, false});
  CHECK_FALSE(f.board.EndOf(kOther).has_value());
}

TEST_CASE("AnUnsealedDoorbellIsRefused") {
  Fixture f;
  ScopedFd plain(memfd_create("plain", MFD_CLOEXEC));
  REQUIRE(ftruncate(plain.get(), kDoorbellBytes) == 0);
  CHECK_FALSE(f.obituaries->Add({kHost, 7, 1}, std::move(plain)).ok());
  CHECK(absl::IsAlreadyExists(f.obituaries->Add(kVictim, Dup(f.victim.memfd()))));
  f.obituaries->Forget(kVictim);
  CHECK(f.obituaries->Add(kVictim, Dup(f.victim.memfd())).ok());
}

}  // namespace
}  // namespace monarch
