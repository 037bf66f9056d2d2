// monarch-launcher: parent of one session's workers on one host. Its daemon's socket is fd 3, or with
// --daemon-fd=0 its stdin; --session only tells people in a process listing which one it is.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/errno_status.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/launcher/launcher.h"

namespace monarch {
namespace {

constexpr int kDaemonSocketFd = 3;
constexpr int kExitFailure = 1;

// Before any thread is made, so that all inherit the mask: the launcher takes its signals from a signalfd,
// and what it does not take (SIGINT of a terminal, SIGHUP, SIGPIPE) does nothing.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  sigprocmask(SIG_SETMASK, &all, nullptr);
}

// A launcher holds several fds a worker. Returns the limit it was started with, for the workers.
uint64_t RaiseOpenFilesLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const uint64_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

// Of the kinds of fds that systemd gives a service, its stdin is the one that can be a socket of the
// caller's.
absl::Status MoveStdin() {
  // In this order: what is opened must not get the number.
  if (dup2(STDIN_FILENO, kDaemonSocketFd) < 0) return ErrnoStatus("move stdin to fd 3", errno);
  const ScopedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid() || dup2(null.get(), STDIN_FILENO) < 0) return ErrnoStatus("open /dev/null", errno);
  return absl::OkStatus();
}

absl::StatusOr<PacketSocket> TakeDaemonSocket() {
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(kDaemonSocketFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
    return ErrnoStatus("take fd 3", errno);
  if (type != SOCK_SEQPACKET) return absl::InvalidArgumentError("fd 3 is no socket of packets");
  if (fcntl(kDaemonSocketFd, F_SETFD, FD_CLOEXEC) != 0) return ErrnoStatus("take fd 3", errno);
  return PacketSocket(ScopedFd(kDaemonSocketFd));
}

absl::Status Run(bool daemon_is_stdin) {
  BlockSignals();
  if (daemon_is_stdin) MONARCH_RETURN_IF_ERROR(MoveStdin());
  LauncherOptions options;
  options.nofile_soft = RaiseOpenFilesLimit();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return ErrnoStatus("become sub-reaper", errno);
  MONARCH_ASSIGN_OR_RETURN(PacketSocket daemon, TakeDaemonSocket());
  MONARCH_ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, MakeEpollEventLoop());
  MONARCH_ASSIGN_OR_RETURN(std::unique_ptr<Launcher> launcher,
                           Launcher::Create(loop.get(), std::move(daemon), options));
  loop->Run();
  // Not destroyed: an output thread may sit in a write to a reader that never reads.
  _exit(0);
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  bool daemon_is_stdin = false;
  for (int i = 1; i < argc; ++i) daemon_is_stdin |= std::string_view(argv[i]) == "--daemon-fd=0";
  const absl::Status status = monarch::Run(daemon_is_stdin);
  monarch::LogError("launcher", "cannot start").With("error", status.ToString());
  return monarch::kExitFailure;
}
