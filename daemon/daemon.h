#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "daemon/daemon_context.h"
#include "daemon/event_log.h"
#include "daemon/grpc_server.h"
#include "daemon/launcher/systemd_manager.h"
#include "daemon/options.h"
#include "daemon/peer_listener.h"
#include "daemon/run_dir.h"
#include "daemon/service/failure_keeper.h"
#include "daemon/session_manager.h"
#include "daemon/sweeper.h"
#include "daemon/unix_listener.h"

namespace monarch {

// The composition root: makes every part, in the order of the members, and drops them in the reverse order.
// Threading: confined to the thread that runs it, which is the control loop's.
class Daemon {
 public:
  // Signals are blocked in this thread before it is called, so that all threads inherit that.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const DaemonOptions& options);
  ~Daemon();

  // Until SIGTERM or SIGINT, or the end of a private daemon's client; all sessions are gone then. Until
  // SIGHUP, which a shared daemon takes for "another build takes over": sessions go on.
  void Run();

 private:
  explicit Daemon(const DaemonOptions& options) : options_(options) {}
  absl::Status Init();
  void MakeLauncherHost();
  absl::Status ListenForClients();
  GrpcServer* operators_grpc() { return operators_grpc_ ? operators_grpc_.get() : grpc_.get(); }
  absl::Status ListenForHosts();
  absl::Status TakeClient(int fd);
  absl::Status WatchSignals();
  void OnSessionGone();
  // Ends all sessions, then the loop.
  void Leave(const std::string& reason);

  // Longer than a session's end takes with all its fallbacks.
  static constexpr absl::Duration kLeaveMax = absl::Seconds(8);
  static constexpr absl::Duration kSliceStopMax = absl::Seconds(15);

  const DaemonOptions options_;
  std::unique_ptr<RunDir> run_dir_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<SystemdManager> systemd_;  // where it starts the launchers
  std::unique_ptr<LauncherHost> launchers_;
  EventLog events_{4096};
  std::unique_ptr<FailureKeeper> failure_keeper_;
  ControlPeers control_peers_;
  std::unique_ptr<Sweeper> sweeper_;
  DaemonContext context_;
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<GrpcServer> operators_grpc_;  // where users are not to see each other's sessions
  std::unique_ptr<UnixListener> grpc_listener_;
  std::unique_ptr<UnixListener> native_listener_;
  std::vector<std::unique_ptr<PeerListener>> host_listeners_;
  ScopedFd signals_;
  ScopedFd client_pidfd_;
  bool leaving_ = false;
};

}  // namespace monarch
