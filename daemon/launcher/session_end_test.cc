#include "daemon/launcher/session_end.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>

namespace monarch {
namespace {

// Workers are plain children of this test, reaped when their end is seen.
struct FakeHost : SessionEnd::Host {
  FakeHost() {
    absl::StatusOr<std::unique_ptr<EventLoop>> made = MakeEpollEventLoop();
    REQUIRE(made.ok());
    loop = *std::move(made);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  pid_t Spawn(bool deaf) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      signal(SIGTERM, deaf ? SIG_IGN : SIG_DFL);
      [[maybe_unused]] const ssize_t written = write(ready[1], "x", 1);
      for (;;) pause();
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
  }
  // Those that listen are told by a signal that is theirs.
  std::vector<pid_t> AskWorkers(const std::string&, absl::Duration) override {
    ++asked;
    for (const pid_t pid : listening) kill(pid, SIGUSR1);
    return listening;
  }
  // As the launcher's loop does between sweeps: reaps what has ended.
  std::vector<pid_t> UnreapedWorkers() const override {
    std::vector<pid_t> left;
    for (const pid_t pid : workers) {
      if (ended.contains(pid)) continue;
      if (waitpid(pid, &ended[pid], WNOHANG) != 0) continue;
      ended.erase(pid);
      left.push_back(pid);
    }
    return left;
  }
  void OnSessionGone() override {
    ++gone;
    loop->Stop();
  }
  void Run() {
    loop->RunAfter(absl::Seconds(20), [this] { loop->Stop(); });
    loop->Run();
  }

  std::unique_ptr<EventLoop> loop;
  std::vector<pid_t> workers;
  std::vector<pid_t> listening;
  mutable std::map<pid_t, int> ended;  // with what status
  int asked = 0;
  int gone = 0;
};

TEST_CASE("AnEmptySessionIsGoneAtOnce") {
  FakeHost host;
  SessionCgroup none;
  SessionEnd end(host.loop.get(), &host, &none, {});
  host.loop->Post([&end] { end.Begin("over", absl::Seconds(10)); });
  host.Run();
  CHECK(host.gone == 1);
  CHECK(end.killed() == 0);
}

TEST_CASE("WhoListensIsAskedAndGetsNoTerm") {
  FakeHost host;
  SessionCgroup none;
  host.workers = {host.Spawn(false), host.Spawn(false)};
  host.listening = {host.workers[0]};
  SessionEnd end(host.loop.get(), &host, &none, {});
  host.loop->Post([&] {
    end.Begin("over", absl::Seconds(10));
    for (const pid_t pid : host.workers) {
      if (!host.ended.contains(pid)) REQUIRE(waitpid(pid, &host.ended[pid], 0) == pid);
    }
    end.Advance();
  });
  host.Run();
  CHECK(WTERMSIG(host.ended[host.workers[0]]) == SIGUSR1);
  CHECK(WTERMSIG(host.ended[host.workers[1]]) == SIGTERM);
  CHECK(host.gone == 1);
  CHECK(end.killed() == 0);
}

TEST_CASE("KillsDeafWorkersAndStrangersAmongTheChildren") {
  FakeHost host;
  SessionCgroup none;
  host.workers = {host.Spawn(true)};
  const pid_t orphan = host.Spawn(true);
  SessionEnd end(host.loop.get(), &host, &none, {});
  host.loop->Post([&end] { end.Begin("over", absl::Milliseconds(20)); });
  host.Run();
  CHECK(host.asked == 1);
  CHECK(host.gone == 1);
  CHECK(end.killed() == 2);
  CHECK_FALSE(ReadProcessStat(orphan).has_value());
}

TEST_CASE("ReapOrphansLeavesWorkersToTheirOwner") {
  FakeHost host;
  const pid_t worker = host.Spawn(false);
  const pid_t orphan = host.Spawn(false);
  for (const pid_t pid : {worker, orphan}) {
    kill(pid, SIGKILL);
    siginfo_t info{};
    REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  }
  ReapOrphans({worker});
  CHECK_FALSE(ReadProcessStat(orphan).has_value());
  int status = 0;
  REQUIRE(waitpid(worker, &status, 0) == worker);
  CHECK(WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace monarch
