#include "daemon/launcher/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "daemon/launcher/exit_status.h"

namespace monarch {
namespace {

constexpr int kWaitMs = 20'000;

bool Readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, kWaitMs) == 1;
}

// Runs `spec` with a pipe as its stdout; what it wrote, its start failure and its end.
struct Ran {
  std::optional<StartFailure> failure;
  ExitStatus status;
  std::string output;
};

Ran Run(ChildSpec spec) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const ScopedFd read_end(ends[0]);
  ScopedFd write_end(ends[1]);
  const ScopedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  spec.fds.push_back({null.get(), 0});
  spec.fds.push_back({write_end.get(), 1});
  spec.fds.push_back({null.get(), 2});
  Ran ran;
  StartFailure failure;
  absl::StatusOr<StartedChild> child = StartChild(spec, &failure);
  write_end.reset();
  if (!child.ok()) {
    ran.failure = failure;
    return ran;
  }
  REQUIRE(Readable(child->outcome.get()));
  ran.failure = ReadStartOutcome(child->outcome.get());
  char buffer[4096];
  while (Readable(read_end.get())) {
    const ssize_t got = read(read_end.get(), buffer, sizeof(buffer));
    if (got <= 0) break;
    ran.output.append(buffer, static_cast<size_t>(got));
  }
  REQUIRE(Readable(child->pidfd.get()));
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED) == 0);
  ran.status = ExitStatus::FromSiginfo(info.si_code, info.si_status);
  return ran;
}

ChildSpec Shell(const std::string& script) {
  ChildSpec spec;
  spec.argv = {"sh", "-c", script};
  spec.env = {"PATH=/nowhere:/usr/bin:/bin", "COLOUR=green"};
  return spec;
}

TEST_CASE("RunsAProgramFoundOnThePathOfItsEnvironment") {
  const Ran ran = Run(Shell("echo $COLOUR; exit 3"));
  CHECK_FALSE(ran.failure.has_value());
  CHECK(ran.output == "green\n");
  CHECK(ran.status == ExitStatus{3, 0, false});
}

TEST_CASE("NamesTheStepThatFailed") {
  SECTION("exec") {
    ChildSpec spec = Shell("");
    spec.argv = {"no-such-program"};
    const Ran ran = Run(spec);
    REQUIRE(ran.failure.has_value());
    CHECK(ran.failure->step == "exec");
    CHECK(ran.failure->error == ENOENT);
  }
  SECTION("exec of a file that is not executable") {
    ChildSpec spec = Shell("");
    spec.argv = {"/proc/self/status"};
    const Ran ran = Run(spec);
    REQUIRE(ran.failure.has_value());
    CHECK(ran.failure->step == "exec");
    CHECK(ran.failure->error == EACCES);
  }
  SECTION("chdir") {
    ChildSpec spec = Shell("");
    spec.cwd = "/no/such/directory";
    const Ran ran = Run(spec);
    REQUIRE(ran.failure.has_value());
    CHECK(ran.failure->step == "chdir");
    CHECK(ran.failure->error == ENOENT);
  }
  SECTION("limits") {
    ChildSpec spec = Shell("");
    spec.limits = {{RLIMIT_NOFILE, 100, 50}};
    const Ran ran = Run(spec);
    REQUIRE(ran.failure.has_value());
    CHECK(ran.failure->step == "limits");
    CHECK(ran.failure->error == EINVAL);
  }
  SECTION("prepare") {
    ChildSpec spec = Shell("");
    spec.argv.clear();
    const Ran ran = Run(spec);
    REQUIRE(ran.failure.has_value());
    CHECK(ran.failure->step == "prepare");
    CHECK(ran.failure->error == EINVAL);
  }
  SECTION("prepare, for an impossible cpu") {
    ChildSpec spec = Shell("");
    spec.cpus = {1 << 20};
    const Ran ran = Run(spec);
    REQUIRE(ran.failure.has_value());
    CHECK(ran.failure->step == "prepare");
  }
}

TEST_CASE("SetsDirectoryUmaskLimitsAndAffinity") {
  cpu_set_t mine;
  REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &mine)) ++cpu;
  ChildSpec spec = Shell("pwd; umask; ulimit -n; ulimit -c; grep Cpus_allowed_list /proc/self/status");
  spec.cwd = "/";
  spec.umask = 027;
  spec.limits = {{RLIMIT_NOFILE, 50, 60}};
  spec.cpus = {cpu};
  const Ran ran = Run(spec);
  CHECK(ran.output == "/\n0027\n50\n0\nCpus_allowed_list:\t" + std::to_string(cpu) + "\n");
}

TEST_CASE("GivesTheFdsAskedForAndNoOthers") {
  const ScopedFd leak(open("/dev/null", O_RDONLY));  // without close-on-exec
  const ScopedFd low(fcntl(leak.get(), F_DUPFD, 5));
  ChildSpec spec = Shell("");
  spec.argv = {"/bin/sh", "-c", "/bin/ls /proc/$$/fd; true"};
  spec.fds = {{low.get(), 4}, {leak.get(), 3}};
  const Ran ran = Run(spec);
  CHECK(ran.output == "0\n1\n2\n3\n4\n");
}

TEST_CASE("ResetsSignals") {
  signal(SIGUSR1, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  const Ran ran = Run(Shell("grep -E 'Sig(Blk|Ign)' /proc/self/status"));
  sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  signal(SIGUSR1, SIG_DFL);
  const std::string ignored = "SigIgn:\t";
  const size_t at = ran.output.find(ignored);
  REQUIRE(at != std::string::npos);
  CHECK(ran.output.substr(0, at) == "SigBlk:\t0000000000000000\n");
  // Signals 32 and 33 belong to the C library, which changes them for nobody.
  const uint64_t library_signals = uint64_t{3} << 31;
  CHECK((std::stoull(ran.output.substr(at + ignored.size()), nullptr, 16) & ~library_signals) == 0);
}

TEST_CASE("LeadsASessionOfItsOwn") {
  const Ran ran = Run(Shell("set -- $(cat /proc/self/stat); echo $(($5 == $$)) $(($6 == $$))"));
  CHECK(ran.output == "1 1\n");
}

}  // namespace
}  // namespace monarch
