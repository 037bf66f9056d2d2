// With the real launcher: what a worker leaves behind ends with it, and nothing else does.

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "daemon/launcher/launcher_fixture.h"
#include "daemon/launcher/leftovers.h"
#include "daemon/launcher/process_stat.h"

namespace monarch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGoneWithin = std::chrono::seconds(2);
// Each process says "<name> <pid>" on stderr.
constexpr char kSay[] = "say() { echo \"$1 $$\" >&2; }; ";

// The numbers that processes said, as they come.
// Threading: confined to the test.
class Said {
 public:
  explicit Said(LauncherFixture* f) : f_(f) {}

  pid_t Await(const std::string& name) {
    const std::string start = name + " ";
    for (;;) {
      const size_t at = text_.find("\n" + start);
      if (at != std::string::npos && text_.find('\n', at + 1) != std::string::npos) {
        return static_cast<pid_t>(atoi(text_.c_str() + at + 1 + start.size()));
      }
      text_ += f_->ReadErr("\n");
    }
  }

 private:
  LauncherFixture* const f_;
  std::string text_ = "\n";
};

// A launcher with a cgroup or without; none where there can be no cgroup.
std::unique_ptr<LauncherFixture> Launcher(bool use_cgroup) {
  auto f = std::make_unique<LauncherFixture>(LauncherFixtureOptions{.use_cgroup = use_cgroup});
  if (f->HasCgroup() == use_cgroup) return f;
  WARN("no writable cgroup of version 2 here, so nothing is tested with one");
  return nullptr;
}

std::string Sh(const std::string& script) { return "sh -c '" + std::string(kSay) + script + "'"; }

std::string LeavesAFamily(const std::string& prefix) {
  return std::string(kSay) + Sh("say " + prefix + "child; exec sleep 600") + " & setsid " +
         Sh("say " + prefix + "session; sleep 600 & wait") + " & ( setsid " +
         Sh("say " + prefix + "daemon; sleep 600 & wait") + " & ) ; say " + prefix +
         "worker; wait; sleep 600";
}

TEST_CASE("WhatADeadWorkerLeftIsGoneSoon") {
  const bool use_cgroup = GENERATE(false, true);
  const int signal = GENERATE(SIGKILL, SIGTERM, SIGSEGV);
  const std::unique_ptr<LauncherFixture> f = Launcher(use_cgroup);
  if (f == nullptr) return;
  Said said(f.get());
  const pid_t worker = f->LaunchOk(f->Shell(LeavesAFamily("a")));
  const pid_t other = f->LaunchOk(f->Shell(LeavesAFamily("b")));
  std::map<std::string, pid_t> pids;
  for (const char* name : {"achild", "asession", "adaemon", "bchild", "bsession", "bdaemon"}) {
    pids[name] = said.Await(name);
  }
  ProcessWatch child(pids["achild"]);
  ProcessWatch session(pids["asession"]);
  ProcessWatch daemon(pids["adaemon"]);

  REQUIRE(kill(worker, signal) == 0);
  const Clock::time_point start = Clock::now();
  f->AwaitExit();
  CHECK(child.Ended());
  CHECK(session.Ended());
  CHECK(daemon.Ended());
  CHECK(Clock::now() - start < kGoneWithin);
  CHECK(ProcessWatch(other).Runs());
  for (const char* name : {"bchild", "bsession", "bdaemon"}) CHECK(ProcessWatch(pids[name]).Runs());
}

TEST_CASE("AlsoAfterAnExitOfItsOwn") {
  const std::unique_ptr<LauncherFixture> f = Launcher(GENERATE(false, true));
  if (f == nullptr) return;
  Said said(f.get());
  const pid_t worker = f->LaunchOk(f->Shell("trap 'exit 0' USR1; ( setsid " +
                                            Sh("trap \"\" TERM HUP; say orphan; sleep 600 & wait") +
                                            " & ); while :; do sleep 600 & wait; done"));
  ProcessWatch orphan(said.Await("orphan"));
  REQUIRE(kill(worker, SIGUSR1) == 0);
  CHECK(f->AwaitExit().status == ExitStatus{});
  CHECK(orphan.Ended());
}

TEST_CASE("OneThatKeepsForkingIsCaught") {
  const std::unique_ptr<LauncherFixture> f = Launcher(GENERATE(false, true));
  if (f == nullptr) return;
  Said said(f.get());
  // Each generation lives just long enough to start the next in a session of its own.
  const std::string again = "say runner; setsid sh -c \"$AGAIN\" & exit 0";
  LaunchRequest request = f->Shell("sh -c \"$AGAIN\"; sleep 600");
  request.env.push_back("AGAIN=" + std::string(kSay) + again);
  const pid_t worker = f->LaunchOk(request);
  said.Await("runner");
  REQUIRE(kill(worker, SIGKILL) == 0);
  f->AwaitExit();
  const Clock::time_point end = Clock::now() + kGoneWithin;
  const auto left = [&] { return DescendantsOf(f->launcher_pid(), ListProcesses()).size(); };
  // A list may miss one that is just being born: three in a row do not.
  int empty = 0;
  while (empty < 3 && Clock::now() < end) empty = left() == 0 ? empty + 1 : 0;
  CHECK(empty == 3);
}

TEST_CASE("WithoutACgroupAWorkersOwnEnvironmentHidesNoChildOfIt") {
  const std::unique_ptr<LauncherFixture> f = Launcher(false);
  Said said(f.get());
  // The middle one has no environment; what it had started before has.
  const pid_t worker = f->LaunchOk(
      f->Shell("( " + Sh("say marked; exec sleep 600") + " & exec env -i setsid sleep 600 ) & sleep 600"));
  ProcessWatch marked(said.Await("marked"));
  REQUIRE(kill(worker, SIGKILL) == 0);
  CHECK(marked.Ended());
}

TEST_CASE("AWorkersMarksReplaceThoseOfTheRequest") {
  LauncherFixture f;
  LaunchRequest request = f.Shell("env | grep MONARCH_ | sort");
  request.env.push_back("MONARCH_SESSION=other");
  request.env.push_back("MONARCH_PROC=9.9");
  f.LaunchOk(request);
  f.AwaitExit();
  CHECK(f.ReadOut("SESSION=" + f.session().ToHex() + "\n") ==
        ProcMark(request.proc) + "\n" + SessionMark(f.session().ToHex()) + "\n");
}

}  // namespace
}  // namespace monarch
