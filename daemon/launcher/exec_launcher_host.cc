#include "daemon/launcher/exec_launcher_host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "daemon/launcher/child_process.h"

namespace monarch {
namespace {

constexpr int kDaemonSocketFd = 3;
// A local program's exec takes milliseconds; one on a dead network disk must not hold the daemon.
constexpr int kExecWaitMs = 5000;

void KillAndReap(const StartedChild& child) {
  kill(child.pid, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED);
}

}  // namespace

absl::StatusOr<StartedLauncher> ExecLauncherHost::Start(const SessionId& session, uid_t uid) {
  if (uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("start ", program_, " for uid ", uid, ": a daemon of uid ", geteuid(),
                     " starts processes of another user through systemd only"));
  }
  const ScopedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return ErrnoStatus("open /dev/null", errno);
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  if (!pair.ok()) return pair.status();

  const int log = log_fd_ >= 0 ? log_fd_ : null.get();
  ChildSpec spec;
  spec.argv = {program_, absl::StrCat("--session=", session.ToHex())};
  // Workers get theirs from the request: nothing of the daemon's leaks.
  spec.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"};
  spec.cwd = program_.starts_with("/") ? "/" : "";
  spec.fds = {{null.get(), STDIN_FILENO},
              {log, STDOUT_FILENO},
              {log, STDERR_FILENO},
              {pair->second.fd(), kDaemonSocketFd}};
  StartFailure failure;
  MONARCH_ASSIGN_OR_RETURN(StartedChild child, StartChild(spec, &failure));
  absl::Status waited;
  do {
    waited = WaitReadable(child.outcome.get(), kExecWaitMs);
  } while (absl::IsCancelled(waited));
  if (!waited.ok()) {
    KillAndReap(child);
    return absl::DeadlineExceededError(
        absl::StrCat("start ", program_, ": not running after ", kExecWaitMs, " ms"));
  }
  if (const std::optional<StartFailure> failed = ReadStartOutcome(child.outcome.get())) {
    KillAndReap(child);
    return ErrnoStatus(absl::StrCat("start ", program_, ": ", failed->step), failed->error);
  }
  return StartedLauncher{child.pid, std::move(child.pidfd), std::move(pair->first)};
}

}  // namespace monarch
