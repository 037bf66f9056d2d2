#include "daemon/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/pidfd.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "daemon/launcher/exec_launcher_host.h"
#include "daemon/launcher/systemd_launcher_host.h"
#include "daemon/notify_socket.h"
#include "daemon/service/grpc_host_control.h"

namespace monarch {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

std::string DefaultLauncherPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, length > 0 ? static_cast<size_t>(length) : 0);
  return self.substr(0, self.rfind('/') + 1) + "monarch-launcher";
}

// An inherited stream would keep whoever reads its other end waiting for this daemon; an inherited directory
// busy.
absl::Status DetachStdio(const std::string& log_path) {
  const ScopedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const ScopedFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!null.valid()) return ErrnoStatus("open /dev/null", errno);
  if (!log.valid()) return ErrnoStatus(absl::StrCat("open log ", log_path), errno);
  if (dup2(null.get(), 0) < 0 || dup2(log.get(), 1) < 0 || dup2(log.get(), 2) < 0) {
    return ErrnoStatus("redirect the standard streams", errno);
  }
  return absl::OkStatus();
}

void RaiseFdLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void Notify(const char* state) {
  const char* const socket = std::getenv("NOTIFY_SOCKET");
  const absl::Status told = NotifySupervisor(socket == nullptr ? "" : socket, state);
  if (!told.ok())
    LogWarning("daemon", "cannot tell the supervisor").With("error", std::string(told.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const DaemonOptions& options) {
  std::unique_ptr<Daemon> daemon(new Daemon(options));
  MONARCH_RETURN_IF_ERROR(daemon->Init());
  return daemon;
}

absl::Status Daemon::Init() {
  SetLogLevel(options_.log_level);
  if (options_.run_dir.empty()) {
    MONARCH_ASSIGN_OR_RETURN(run_dir_, RunDir::CreatePrivate());
  } else {
    MONARCH_ASSIGN_OR_RETURN(run_dir_, RunDir::Open(options_.run_dir, options_.is_system));
  }
  if (options_.is_private || !options_.log_path.empty()) {
    MONARCH_RETURN_IF_ERROR(
        DetachStdio(options_.log_path.empty() ? run_dir_->path() + "/monarchd.log" : options_.log_path));
  }
  if (options_.is_private) setsid();
  RaiseFdLimit();
  // What a dead launcher leaves behind comes here.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return ErrnoStatus("become a sub-reaper", errno);

  MONARCH_ASSIGN_OR_RETURN(loop_, MakeEpollEventLoop());
  MakeLauncherHost();
  sweeper_ = std::make_unique<ProcessSweeper>(loop_.get());
  context_.loop = loop_.get();
  context_.launchers = launchers_.get();
  if (options_.run_dir.empty()) {
    failure_keeper_ = std::make_unique<FailureKeeper>(loop_.get(), &events_, run_dir_->path());
  }
  context_.events = &events_;
  context_.control_peers = &control_peers_;
  context_.sweeper = sweeper_.get();
  context_.limits = options_.limits;
  context_.host = HostId::Random();
  context_.survives = !options_.is_private && !options_.run_dir.empty();
  if (context_.survives) {
    const HostState state = LoadHostState(run_dir_->path());
    context_.host = state.host;
    context_.next_proc = state.first_proc();
  }
  context_.host_name = HostName();
  context_.run_dir = run_dir_->path();
  context_.is_private = options_.is_private;
  context_.is_system = options_.is_system;
  context_.allow_root = options_.allow_root;
  context_.started = loop_->Now();
  context_.make_host_control = [loop = loop_.get()](ScopedFd socket, const StartToken& token) {
    return MakeGrpcHostControl(loop, std::move(socket), token);
  };
  if (!options_.worker_addresses.empty())
    context_.leave = [this](const std::string& reason) { Leave(reason); };
  sessions_ = std::make_unique<SessionManager>(
      &context_,
      [this](ScopedFd socket, const std::string& owner) {
        return grpc_->AddConnection(std::move(socket), owner);
      },
      [this] { OnSessionGone(); });
  // Whom a session's connections belong to sees that session; who looks at all of them comes another way.
  MONARCH_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(&context_, sessions_.get(), !options_.is_system));
  if (options_.is_system) {
    MONARCH_ASSIGN_OR_RETURN(operators_grpc_, GrpcServer::Start(&context_, sessions_.get(), true));
  }
  // First: who comes back finds its session.
  if (context_.survives) {
    for (AdoptedSession& session : AdoptSessions(run_dir_->path(), context_.host))
      sessions_->AddAdopted(std::move(session));
  }
  MONARCH_RETURN_IF_ERROR(ListenForClients());
  MONARCH_RETURN_IF_ERROR(ListenForHosts());
  MONARCH_RETURN_IF_ERROR(WatchSignals());
  if (options_.is_private) MONARCH_RETURN_IF_ERROR(TakeClient(options_.client_fd));
  loop_->Post([this] { grpc_->WarmUp(); });
  LogInfo("daemon", "monarchd started")
      .With("version", kVersion)
      .With("run_dir", run_dir_->path())
      .With("private", options_.is_private)
      .With("host", context_.host.ToHex());
  return absl::OkStatus();
}

// The system's daemon asks systemd; where it cannot, and all others, start launchers themselves.
void Daemon::MakeLauncherHost() {
  const std::string program = options_.launcher_path.empty() ? DefaultLauncherPath() : options_.launcher_path;
  if (options_.is_system) {
    absl::StatusOr<std::unique_ptr<SystemdManager>> systemd =
        SystemdManager::Open(SystemdManager::Scope::kSystem);
    if (systemd.ok()) {
      systemd_ = *std::move(systemd);
      launchers_ = std::make_unique<SystemdLauncherHost>(systemd_.get(), program);
      return;
    }
    LogWarning("daemon", "launchers are children of monarchd, and of its user alone")
        .With("reason", std::string(systemd.status().message()));
  }
  launchers_ = std::make_unique<ExecLauncherHost>(program, STDERR_FILENO);
}

absl::Status Daemon::ListenForClients() {
  using Access = UnixListener::Access;
  const bool is_system = options_.is_system;
  MONARCH_ASSIGN_OR_RETURN(
      grpc_listener_,
      UnixListener::Start(
          loop_.get(), run_dir_->path() + "/grpc.sock", SOCK_STREAM,
          is_system ? Access::kOperators : Access::kOwner, [this](ScopedFd fd, const PeerCredentials& peer) {
            const absl::Status added =
                operators_grpc()->AddConnection(std::move(fd), absl::StrCat("pid ", peer.pid));
            if (!added.ok())
              LogWarning("daemon", "control connection refused").With("error", added.ToString());
          }));
  MONARCH_ASSIGN_OR_RETURN(native_listener_,
                           UnixListener::Start(loop_.get(), run_dir_->path() + "/native.sock", SOCK_SEQPACKET,
                                               is_system ? Access::kEverybody : Access::kOwner,
                                               [this](ScopedFd fd, const PeerCredentials& peer) {
                                                 sessions_->AddPeer(std::move(fd), peer, false);
                                               }));
  return absl::OkStatus();
}

absl::Status Daemon::ListenForHosts() {
  for (const std::string& text : options_.worker_addresses) {
    MONARCH_ASSIGN_OR_RETURN(const HostAddress address, HostAddress::Parse(text, HostAddress::Side::kBind));
    MONARCH_ASSIGN_OR_RETURN(
        auto listener, PeerListener::Start(loop_.get(), address, [this](PeerListener::Connection connection) {
          sessions_->AddHost(std::move(connection));
        }));
    host_listeners_.push_back(std::move(listener));
  }
  return absl::OkStatus();
}

absl::Status Daemon::TakeClient(int fd) {
  if (fd < 0) return absl::InvalidArgumentError("--private needs --client-fd");
  ScopedFd socket(fd);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    socket.release();
    return ErrnoStatus(absl::StrCat("take client fd ", fd), errno);
  }
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    return absl::InvalidArgumentError(absl::StrCat("client fd ", fd, " is no SEQPACKET socket"));
  }
  // Of a pair, the credentials are those of the process that made it: the client.
  MONARCH_ASSIGN_OR_RETURN(const PeerCredentials peer, ReadPeerCredentials(fd));
  absl::StatusOr<ScopedFd> pidfd = OpenPidfd(peer.pid);
  if (!pidfd.ok()) return pidfd.status();
  client_pidfd_ = *std::move(pidfd);
  MONARCH_RETURN_IF_ERROR(loop_->WatchFd(client_pidfd_.get(), EPOLLIN, [this](uint32_t) {
    loop_->Unwatch(client_pidfd_.get());
    Leave("the client has ended");
  }));
  sessions_->AddPeer(std::move(socket), peer, true);
  return absl::OkStatus();
}

absl::Status Daemon::WatchSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (context_.survives) sigaddset(&set, SIGHUP);
  signals_ = ScopedFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return ErrnoStatus("make a signalfd", errno);
  return loop_->WatchFd(signals_.get(), EPOLLIN, [this](uint32_t) {
    signalfd_siginfo info;
    bool told_to_stop = false;
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info))
      told_to_stop |= info.ssi_signo != SIGHUP;
    const bool restarts = systemd_ && systemd_->JobOf(getpid()).value_or("") == "restart";
    if (!context_.survives || (told_to_stop && !restarts)) return Leave("monarchd was told to stop");
    Notify("STOPPING=1");
    LogInfo("daemon", "monarchd leaves its sessions to the next");
    loop_->Stop();
  });
}

void Daemon::OnSessionGone() {
  if (sessions_->sessions().empty() && (leaving_ || options_.is_private)) loop_->Stop();
}

void Daemon::Leave(const std::string& reason) {
  if (leaving_) return;
  leaving_ = true;
  Notify("STOPPING=1");
  LogInfo("daemon", "monarchd leaves").With("reason", reason);
  sessions_->EndAll(reason);
  if (sessions_->sessions().empty()) return loop_->Stop();
  loop_->RunAfter(kLeaveMax, [this] {
    LogError("daemon", "sessions do not end");
    loop_->Stop();
  });
}

void Daemon::Run() {
  Notify("READY=1");
  loop_->Run();
  // Whatever of a session is left there, also of a daemon that was killed, ends before this unit counts as
  // stopped.
  if (leaving_ && systemd_) {
    const absl::Status stopped = systemd_->Stop(SystemdLauncherHost::kSlice, kSliceStopMax);
    if (!stopped.ok())
      LogWarning("daemon", "the slice is not stopped").With("error", std::string(stopped.message()));
  }
  LogInfo("daemon", "monarchd ended").With("run_dir", run_dir_->path());
}

Daemon::~Daemon() {
  // Who follows them would be waited for.
  events_.UnsubscribeAll();
  // Handlers that still run hold the sessions; the loop takes no more of their tasks.
  if (grpc_) grpc_->Shutdown();
  if (operators_grpc_) operators_grpc_->Shutdown();
}

}  // namespace monarch
