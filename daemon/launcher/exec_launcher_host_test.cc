#include "daemon/launcher/exec_launcher_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "daemon/launcher/exit_status.h"

namespace monarch {
namespace {

constexpr int kWaitMs = 20'000;

ExitStatus Reap(const StartedLauncher& launcher) {
  pollfd entry{launcher.pidfd.get(), POLLIN, 0};
  REQUIRE(poll(&entry, 1, kWaitMs) == 1);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(launcher.pid), &info, WEXITED) == 0);
  return ExitStatus::FromSiginfo(info.si_code, info.si_status);
}

TEST_CASE("SaysWhyAProgramDidNotStart") {
  ExecLauncherHost host("/no/such/launcher", -1);
  const absl::StatusOr<StartedLauncher> started = host.Start(SessionId::Random(), geteuid());
  CHECK(absl::IsNotFound(started.status()));
}

TEST_CASE("GivesASocketThatEndsWithTheLauncher") {
  // Stands in for a launcher: ends at once.
  ExecLauncherHost host("/bin/true", -1);
  absl::StatusOr<StartedLauncher> started = host.Start(SessionId::Random(), geteuid());
  REQUIRE(started.ok());
  CHECK(Reap(*started) == ExitStatus{});
  Packet packet;
  CHECK(absl::IsUnavailable(started->socket.TryReceive(&packet).status()));
}

TEST_CASE("StartsNothingForAnotherUser") {
  ExecLauncherHost host("/bin/true", -1);
  const absl::StatusOr<StartedLauncher> started = host.Start(SessionId::Random(), geteuid() + 1);
  CHECK(absl::IsPermissionDenied(started.status()));
}

TEST_CASE("TheLogFdIsItsStdoutAndStderr") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const ScopedFd read_end(ends[0]);
  const ScopedFd write_end(ends[1]);
  // Says its only argument is unknown, on stderr.
  ExecLauncherHost host("/bin/ls", write_end.get());
  const SessionId session = SessionId::Random();
  absl::StatusOr<StartedLauncher> started = host.Start(session, geteuid());
  REQUIRE(started.ok());
  CHECK_FALSE(Reap(*started) == ExitStatus{});
  char buffer[4096];
  const ssize_t got = read(read_end.get(), buffer, sizeof(buffer));
  REQUIRE(got > 0);
  CHECK(std::string(buffer, static_cast<size_t>(got)).find(session.ToHex()) != std::string::npos);
}

}  // namespace
}  // namespace monarch
