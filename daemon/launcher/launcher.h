#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/control_channel.h"
#include "daemon/launcher/daemon_door.h"
#include "daemon/launcher/keepsakes.h"
#include "daemon/launcher/launcher_messages.h"
#include "daemon/launcher/memory_watch.h"
#include "daemon/launcher/obituaries.h"
#include "daemon/launcher/session_cgroup.h"
#include "daemon/launcher/session_end.h"
#include "daemon/launcher/session_output.h"
#include "daemon/launcher/worker.h"
#include "daemon/launcher/worker_remains.h"
#include "message/lifeline.h"
#include "message/packet_socket.h"

namespace monarch {

// Bounds and delays of one launcher. Plain data.
struct LauncherOptions {
  size_t workers_max = 4096;  // alive at once; each costs six fds here
  // From TERM to KILL where nobody says otherwise: the client or the daemon is dead.
  absl::Duration kill_after = absl::Seconds(1);
  // For the last output to reach its reader before the session is called gone, and again before the launcher
  // leaves.
  absl::Duration flush_wait = absl::Milliseconds(200);
  size_t kept_max = size_t{1} << 20;  // entries for the next daemon: processes, links, ends
  StopLadderOptions stop;
  WorkerRemainsOptions remains;
  uint64_t nofile_soft = 0;  // workers' soft limit of open files unless the request says; 0: as here
};

// One session's launcher: sets up, starts workers as the daemon asks, tells of their deaths, ends the session
// when asked, on SIGTERM, or when client or daemon is gone. Then stops the loop. Threading: confined to the
// loop, which runs on the process's main thread.
class Launcher : private Worker::Events, private SessionEnd::Host, private WorkerRemains::Host {
 public:
  // All signals are blocked already (they are taken by a signalfd), before any thread was made.
  static absl::StatusOr<std::unique_ptr<Launcher>> Create(EventLoop* loop, PacketSocket daemon,
                                                          LauncherOptions options);
  ~Launcher() override;

 private:
  Launcher(EventLoop* loop, LauncherOptions options);
  absl::Status Init(PacketSocket daemon);

  // From the daemon.
  void OnDaemonMessage(ControlMessage message, std::vector<ScopedFd> fds);
  void OnDaemonClosed(const absl::Status& reason);
  void TalkTo(PacketSocket daemon);
  // With a door: the session goes on without a daemon for some time.
  absl::Status OpenDoor(const LauncherSetup& setup);
  void OnNextDaemon(PacketSocket daemon);
  void Tell(const ProcAddress& proc, const ControlMessage& message);
  void Setup(const ControlMessage& message, std::vector<ScopedFd> fds);
  absl::Status DoSetup(const Value& body, std::vector<ScopedFd> fds);
  void Launch(const ControlMessage& message, std::vector<ScopedFd> fds);
  absl::Status DoLaunch(const LaunchRequest& request, ScopedFd daemon_socket, StartFailure* failure);
  ChildSpec SpecFor(const LaunchRequest& request, int daemon_socket);
  void Signal(const ControlMessage& message);
  void EndSession(const ControlMessage& message);
  absl::Status TakeDoorbell(const Value& body, std::vector<ScopedFd> fds);
  absl::Status TakeLink(const Value& body);
  absl::Status SetStopping(const Value& body);
  void Answer(uint32_t request, const absl::Status& status);

  // From the kernel.
  void OnClientDead();
  void OnSignalFd();
  void OnLifeline(uint64_t key);
  void OnMemoryEvent(const std::string& cgroup);

  // Worker::Events
  void OnLaunched(Worker& worker) override;
  void OnLaunchFailed(Worker& worker, const LaunchFailure& failure) override;
  void OnDying(Worker& worker, const WorkerDying& dying) override;
  void OnExited(Worker& worker, const WorkerExit& exit) override;
  void OnReaped(Worker& worker, bool ran) override;

  // SessionEnd::Host
  std::vector<pid_t> AskWorkers(const std::string& reason, absl::Duration grace) override;
  std::vector<pid_t> UnreapedWorkers() const override;  // WorkerRemains::Host's too
  void OnSessionGone() override;

  void SendGone();
  void RemoveFinishedWorkers();
  Worker* FindAlive(const ProcAddress& proc);

  // Constant after construction.
  EventLoop* const loop_;
  const LauncherOptions options_;

  // Confined to the loop. Workers use what stands before them.
  ScopedFd signals_;
  ScopedFd client_;
  std::optional<SessionId> session_;
  SessionCgroup cgroup_;
  std::unique_ptr<Obituaries> obituaries_;  // the watcher uses it
  std::unique_ptr<LifelineWatcher> lifelines_;
  std::unique_ptr<SessionOutput> output_;
  std::unique_ptr<ControlChannel> daemon_;
  std::map<uint64_t, std::unique_ptr<Worker>> workers_;
  uint64_t next_key_ = 1;
  SessionEnd end_;
  WorkerRemains remains_;
  MemoryKills memory_kills_{MemoryKills::FindShared()};
  MemoryWatch memory_watch_{loop_, [this](const std::string& cgroup) { OnMemoryEvent(cgroup); }};
  std::vector<uint32_t> end_requests_;
  bool gone_sent_ = false;
  bool reap_armed_ = false;
  std::unique_ptr<DaemonDoor> door_;  // none: the session ends with its daemon
  Keepsakes kept_;
  absl::Duration absence_max_;
  EventLoop::TimerId absence_timer_ = 0;
};

}  // namespace monarch
