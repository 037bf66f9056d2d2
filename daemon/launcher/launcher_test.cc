#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/time/time.h"
#include "base/clock.h"
#include "daemon/launcher/launcher_fixture.h"
#include "daemon/launcher/process_stat.h"

namespace monarch {
namespace {

// A script that leaves a grandchild in a session of its own that is deaf to TERM, says its pid, and waits.
constexpr char kLeavesGrandchild[] =
    "setsid sh -c 'trap \"\" TERM; echo grandchild $$ >&2; exec sleep 600' & sleep 600";

pid_t NumberBehind(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  REQUIRE(at != std::string::npos);
  return static_cast<pid_t>(atoi(text.c_str() + at + word.size()));
}

pid_t AwaitGrandchild(LauncherFixture& f) {
  std::string text = f.ReadErr("grandchild ");
  while (text.find('\n', text.find("grandchild ")) == std::string::npos) text += f.ReadErr("\n");
  return NumberBehind(text, "grandchild ");
}

TEST_CASE("LaunchesAWorkerAndTellsHowItEnded") {
  LauncherFixture f;
  const LaunchRequest request = f.Shell("echo $COLOUR $MONARCH_SESSION; echo bad >&2; exit 3");
  f.Launch(request);
  const ControlMessage launched = f.Next(ControlType::kLaunched);
  CHECK(ProcAddressFromValue(launched.body["proc"]).value() == request.proc);
  CHECK(ParseWorkerDying(f.Next(ControlType::kDying).body)->cause == ExitStatus{3, 0, false});
  const absl::StatusOr<WorkerExit> exit = ParseWorkerExit(f.Next(ControlType::kExited).body);
  REQUIRE(exit.ok());
  CHECK(exit->proc == request.proc);
  CHECK(exit->status == ExitStatus{3, 0, false});
  CHECK(exit->stderr_tail == "bad");
  CHECK(exit->maxrss_kib > 0);
  CHECK(f.ReadOut("\n") == "green " + f.session().ToHex() + "\n");
  CHECK(f.ReadErr("\n") == "bad\n");
}

TEST_CASE("TellsWhichStepOfALaunchFailed") {
  LauncherFixture f;
  SECTION("no such program") {
    f.Launch(f.Request({"/no/such/program"}));
    const LaunchFailure failure = ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body).value();
    CHECK(failure.step == "exec");
    CHECK(failure.error == ENOENT);
    CHECK(failure.message == "No such file or directory");
  }
  SECTION("no such directory") {
    LaunchRequest request = f.Shell("true");
    request.cwd = "/no/such/directory";
    f.Launch(request);
    const LaunchFailure failure = ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body).value();
    CHECK(failure.proc == request.proc);
    CHECK(failure.step == "chdir");
    CHECK(failure.error == ENOENT);
  }
  SECTION("a cpu that the host does not have") {
    LaunchRequest request = f.Shell("true");
    request.cpus = {0, 4095};
    f.Launch(request);
    const LaunchFailure failure = ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body).value();
    CHECK(failure.step == "prepare");
    CHECK(failure.message.find("no such cpu: 4095; this host has ") == 0);
  }
  SECTION("without the worker's socket") {
    f.Send(ControlType::kLaunch, 0, ToBody(f.Shell("true")));
    CHECK(ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body)->step == "request");
  }
  SECTION("the same proc twice") {
    const LaunchRequest request = f.Shell("sleep 600");
    f.LaunchOk(request);
    f.Launch(request);
    CHECK(ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body)->step == "request");
  }
  // And goes on.
  f.LaunchOk(f.Shell("exit 0"));
  CHECK(f.AwaitExit().status == ExitStatus{});
}

TEST_CASE("SignalsAWorker") {
  LauncherFixture f;
  const LaunchRequest request = f.Shell("sleep 600");
  f.LaunchOk(request);
  f.Send(ControlType::kSignal, 5, Value::Map{{"proc", ToValue(request.proc)}, {"signal", SIGKILL}});
  CHECK(f.Next(ControlType::kOk).request == 5);
  CHECK(f.AwaitExit().status == ExitStatus{0, SIGKILL, false});
  f.Send(ControlType::kSignal, 6, Value::Map{{"proc", ToValue(request.proc)}, {"signal", 1000}});
  CHECK(f.Next(ControlType::kRefused).request == 6);
}

TEST_CASE("TellsOfADeathByTheLifelineBeforeTheExit") {
  LauncherFixture f;
  const pid_t pid = f.LaunchOk(f.Helper("wait"));
  CHECK(f.ReadOut("\n") == "ready boot=luggage token=secret\n");
  REQUIRE(kill(pid, SIGKILL) == 0);
  CHECK(ParseWorkerDying(f.Next(ControlType::kDying).body)->cause == ExitStatus{0, SIGKILL, false});
  CHECK(ParseWorkerExit(f.Next(ControlType::kExited).body)->status == ExitStatus{0, SIGKILL, false});
}

TEST_CASE("TellsAnExitStatusByTheLifeline") {
  LauncherFixture f;
  PacketSocket daemon_end = f.Launch(f.Helper("exit"));
  f.Next(ControlType::kLaunched);
  f.ReadOut("ready");
  REQUIRE(daemon_end.TrySend("x").value());
  CHECK(ParseWorkerDying(f.Next(ControlType::kDying).body)->cause == ExitStatus{5, 0, false});
  CHECK(f.AwaitExit().status == ExitStatus{5, 0, false});
}

TEST_CASE("GarbageFromAWorkerClosesItsSocketOnly") {
  LauncherFixture f;
  const pid_t pid = f.LaunchOk(f.Helper("garbage"));
  f.ReadOut("ready");
  f.LaunchOk(f.Shell("exit 0"));
  CHECK(f.AwaitExit().status == ExitStatus{});
  // The life-line it had sent before still tells.
  REQUIRE(kill(pid, SIGKILL) == 0);
  CHECK(ParseWorkerDying(f.Next(ControlType::kDying).body)->cause.signal == SIGKILL);
}

TEST_CASE("KeepsTheLastStderrLines") {
  LauncherFixture f;
  f.LaunchOk(
      f.Shell("i=0; while [ $i -lt 80 ]; do echo line $i >&2; i=$((i+1)); done; printf end >&2; exit 1"));
  const std::string tail = f.AwaitExit().stderr_tail;
  CHECK(tail.substr(0, 8) == "line 31\n");
  CHECK(tail.substr(tail.size() - 11) == "line 79\nend");
}

TEST_CASE("AGrandchildThatHoldsThePipesDelaysNoExit") {
  LauncherFixture f;
  f.LaunchOk(f.Shell("sleep 600 & echo bye; exit 4"));
  CHECK(f.AwaitExit().status == ExitStatus{4, 0, false});
  CHECK(f.ReadOut("bye\n") == "bye\n");
}

TEST_CASE("AStuckReaderOfStdoutBlocksNothing") {
  LauncherFixture f;
  f.LaunchOk(f.Shell("head -c 20000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo last"));
  // The worker ends although nobody reads, and others start and end meanwhile.
  CHECK(f.AwaitExit().status == ExitStatus{});
  f.LaunchOk(f.Shell("echo err >&2; exit 6"));
  CHECK(f.AwaitExit().status == ExitStatus{6, 0, false});
  CHECK(f.ReadErr("err\n") == "err\n");
  const std::string output = f.ReadOut("last\n");
  CHECK(output.find("bytes of output dropped") != std::string::npos);
  CHECK(output.size() < 6'000'000);
}

TEST_CASE("DoesNotTearLinesOfSeveralWorkers") {
  LauncherFixture f;
  const std::string script =
      "i=0; while [ $i -lt 200 ]; do printf %s $0; printf '%s\\n' $0; i=$((i+1)); done";
  for (const char* word : {"aaaa", "bbbb", "cccc"}) f.Launch(f.Request({"sh", "-c", script, word}));
  for (int i = 0; i < 3; ++i) f.AwaitExit();
  f.LaunchOk(f.Shell("echo done"));
  const std::string output = f.ReadOut("done\n");
  size_t lines = 0;
  for (size_t at = 0; at < output.size() && output.compare(at, 4, "done") != 0;
       at = output.find('\n', at) + 1) {
    const std::string line = output.substr(at, output.find('\n', at) - at);
    CHECK((line == "aaaaaaaa" || line == "bbbbbbbb" || line == "cccccccc"));
    ++lines;
  }
  CHECK(lines == 600);
}

TEST_CASE("WritesTheWorkerLog") {
  LauncherFixture f({.log_bytes_max = 1 << 20});
  f.LaunchOk(f.Shell("echo one; exit 0"));
  f.AwaitExit();
  f.Send(ControlType::kEndSession, 9, Value::Map{{"kill_after_ms", 0}});
  f.Await(ControlType::kSessionGone);
  std::ifstream in(f.log_path());
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "workers[0]| one\n");
}

TEST_CASE("EndsASessionWithEverythingInIt") {
  LauncherFixture f;
  const pid_t worker = f.LaunchOk(f.Shell(kLeavesGrandchild));
  ProcessWatch worker_watch(worker);
  ProcessWatch grandchild_watch(AwaitGrandchild(f));
  f.Send(ControlType::kEndSession, 9, Value::Map{{"kill_after_ms", 5000}});
  const SystemClock clock;
  const absl::Duration start = clock.Now();
  const ControlMessage gone = f.Await(ControlType::kSessionGone);
  CHECK(gone.request == 9);
  CHECK(gone.body["killed"].AsInt().value() >= 1);
  // TERM ended the worker, so nothing waits for the time of KILL.
  CHECK(clock.Now() - start < absl::Seconds(4));
  CHECK(worker_watch.Ended());
  CHECK(grandchild_watch.Ended());
  CHECK(f.WaitLauncher() == ExitStatus{});
  CHECK(f.OutEnds());
}

TEST_CASE("AsksWorkersToLeaveWhoeverEndsTheSession") {
  LauncherFixture f;
  f.LaunchOk(f.Helper("polite"));
  f.ReadOut("ready");
  SECTION("the daemon") {
    f.Send(ControlType::kEndSession, 9, Value::Map{{"kill_after_ms", 5000}, {"reason", "enough"}});
    f.ReadOut("asked: enough, 5000 ms\n");
  }
  SECTION("a signal to the launcher") { f.SignalLauncher(SIGTERM); }
  SECTION("the client's death") { f.KillClient(); }
  // By itself: with status 0.
  CHECK(f.AwaitExit().status == ExitStatus{});
  f.Await(ControlType::kSessionGone);
}

TEST_CASE("KillsWhatIsDeafToTerm") {
  LauncherFixture f;
  const pid_t worker = f.LaunchOk(f.Helper("stubborn"));
  ProcessWatch watch(worker);
  f.ReadOut("deaf\n");
  f.Send(ControlType::kEndSession, 9, Value::Map{{"kill_after_ms", 100}});
  CHECK(f.AwaitExit().status == ExitStatus{0, SIGKILL, false});
  CHECK(f.Await(ControlType::kSessionGone).body["killed"].AsInt().value() == 1);
  CHECK(watch.Ended());
}

TEST_CASE("RefusesLaunchesWhileTheSessionEnds") {
  LauncherFixture f;
  f.LaunchOk(f.Helper("stubborn"));
  f.ReadOut("deaf\n");
  f.Send(ControlType::kEndSession, 9, Value::Map{{"kill_after_ms", 300}});
  f.Launch(f.Shell("true"));
  const LaunchFailure failure = ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body).value();
  CHECK(failure.step == "session");
  CHECK(failure.error == ECANCELED);
  f.Await(ControlType::kSessionGone);
}

TEST_CASE("TheLastOutputComesBeforeTheSessionIsGone") {
  LauncherFixture f;
  f.LaunchOk(f.Request(
      {"sh", "-c", "trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 600 & wait; done"}));
  f.ReadOut("up\n");
  f.Send(ControlType::kEndSession, 9, Value::Map{{"kill_after_ms", 10'000}});
  f.Await(ControlType::kSessionGone);
  CHECK(f.ReadOut("cleaned\n") == "cleaned\n");
}

// Everything is gone, and so is the launcher, with nobody asking.
void CheckEndsByItself(LauncherFixture& f, pid_t worker, pid_t grandchild, void (*cause)(LauncherFixture&)) {
  ProcessWatch worker_watch(worker);
  ProcessWatch grandchild_watch(grandchild);
  const SystemClock clock;
  const absl::Duration start = clock.Now();
  cause(f);
  CHECK(worker_watch.Ended());
  CHECK(grandchild_watch.Ended());
  CHECK(f.OutEnds());
  CHECK(f.WaitLauncher() == ExitStatus{});
  CHECK(clock.Now() - start < absl::Seconds(5));
}

TEST_CASE("EndsTheSessionByItself") {
  LauncherFixture f;
  const pid_t worker = f.LaunchOk(f.Shell(kLeavesGrandchild));
  const pid_t grandchild = AwaitGrandchild(f);
  SECTION("when the client dies") {
    CheckEndsByItself(f, worker, grandchild, [](LauncherFixture& l) { l.KillClient(); });
    CHECK(f.Await(ControlType::kSessionGone).request == 0);
  }
  SECTION("when the daemon dies") {
    CheckEndsByItself(f, worker, grandchild, [](LauncherFixture& l) { l.CloseDaemonSocket(); });
  }
  SECTION("when the daemon sends garbage") {
    CheckEndsByItself(f, worker, grandchild,
                      [](LauncherFixture& l) { REQUIRE(l.daemon_socket().TrySend("x").value()); });
  }
  SECTION("on SIGTERM") {
    CheckEndsByItself(f, worker, grandchild, [](LauncherFixture& l) { l.SignalLauncher(SIGTERM); });
  }
}

TEST_CASE("ADeadClientsOutputIsClosedBeforeItsWorkersEnd") {
  LauncherFixture f;
  const pid_t worker = f.LaunchOk(f.Helper("stubborn"));
  f.ReadOut("deaf\n");
  f.KillClient();
  CHECK(f.OutEnds());
  CHECK(ReadProcessStat(worker).has_value());
  CHECK(f.AwaitExit().status == ExitStatus{0, SIGKILL, false});
}

TEST_CASE("SurvivesTheSignalsOfATerminal") {
  LauncherFixture f;
  for (const int signal : {SIGINT, SIGHUP, SIGPIPE, SIGQUIT}) f.SignalLauncher(signal);
  f.LaunchOk(f.Shell("exit 0"));
  CHECK(f.AwaitExit().status == ExitStatus{});
}

TEST_CASE("WorkersDieWithTheLauncher") {
  LauncherFixture f;
  ProcessWatch watch(f.LaunchOk(f.Helper("stubborn")));
  f.ReadOut("deaf\n");
  f.SignalLauncher(SIGKILL);
  CHECK(f.WaitLauncher() == ExitStatus{0, SIGKILL, false});
  CHECK(watch.Ended());
}

TEST_CASE("ReapsAdoptedOrphansOfALivingWorker") {
  LauncherFixture f;
  f.LaunchOk(f.Shell("(sh -c 'echo orphan $$ >&2; exec sleep 600' &); sleep 600"));
  std::string text = f.ReadErr("orphan ");
  while (text.find('\n') == std::string::npos) text += f.ReadErr("\n");
  const pid_t orphan = NumberBehind(text, "orphan ");
  ProcessWatch watch(orphan);
  REQUIRE(kill(orphan, SIGKILL) == 0);
  CHECK(watch.Ended());
  // Reaping is late by design; each worker's end gives it a chance.
  for (int i = 0; i < 1000 && ReadProcessStat(orphan).has_value(); ++i) {
    f.LaunchOk(f.Shell("exit 0"));
    f.AwaitExit();
  }
  CHECK_FALSE(ReadProcessStat(orphan).has_value());
}

TEST_CASE("ArgumentsAndEnvironmentMayBeAnyBytes") {
  LauncherFixture f;
  LaunchRequest request = f.Request({"sh", "-c", "printf '%s|%s\\n' \"$0\" \"$LATIN\"", "arg\xff"});
  request.env.push_back("LATIN=\xe4\xf6");
  f.LaunchOk(request);
  CHECK(f.ReadOut("\n") == "arg\xff|\xe4\xf6\n");
}

TEST_CASE("ALaunchLargerThanAPacketTravelsInAMemfd") {
  LauncherFixture f;
  SECTION("by its environment") {
    LaunchRequest request = f.Shell("echo ${#LARGE00} ${#LARGE15}");
    for (char c = '0'; c <= '9'; ++c)
      request.env.push_back(std::string("LARGE0") + c + "=" + std::string(9999, 'x'));
    for (char c = '0'; c <= '5'; ++c)
      request.env.push_back(std::string("LARGE1") + c + "=" + std::string(8888, 'x'));
    f.LaunchOk(request);
    CHECK(f.ReadOut("\n") == "9999 8888\n");
  }
  SECTION("by what it gives to the worker") {
    LaunchRequest request = f.Helper("boot-size");
    request.boot.assign(3'000'000, '\xff');
    f.LaunchOk(request);
    CHECK(f.ReadOut("\n") == "bytes 3000000\n");
  }
  SECTION("and by more than the kernel takes") {
    LaunchRequest request = f.Shell("true");
    request.env.push_back("LARGE=" + std::string(1'000'000, 'x'));
    f.Launch(request);
    const LaunchFailure failure = ParseLaunchFailure(f.Next(ControlType::kLaunchFailed).body).value();
    CHECK(failure.step == "exec");
    CHECK(failure.error == E2BIG);
  }
}

TEST_CASE("RefusesASecondSetupAndUnknownRequests") {
  LauncherFixture f;
  LauncherSetup again;
  again.session = f.session();
  again.client_pid = 1;
  f.Send(ControlType::kSetup, 5, ToBody(again));
  CHECK(f.Next(ControlType::kRefused).request == 5);
  f.Send(ControlType::kGoodbye, 6, Value::Map{});
  CHECK(f.Next(ControlType::kRefused).request == 6);
}

}  // namespace
}  // namespace monarch
