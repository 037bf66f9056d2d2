#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/limits.h"
#include "daemon/launcher/launcher_host.h"
#include "daemon/launcher/memory_kills.h"
#include "daemon/native_connection.h"
#include "daemon/process_types.h"

namespace monarch {

// How a process that the launcher reaped ended. Both zero: with status 0.
struct ProcExit {
  int code = 0;
  int signal = 0;
  bool core = false;
  std::string stderr_tail;
  std::string backtrace;
  MemoryVerdict memory_kill;
  bool confirmed = false;  // reaped; else read from /proc, where both zero mean "not known yet"
};

// Where a launcher waits for the next daemon when this one has gone.
struct LauncherResume {
  std::string path;
  StartToken token;
  absl::Duration absence_max;
};

// A running launcher as this daemon sees it: its process, and its socket.
// Threading: confined to the control loop.
class LauncherLink : private NativeConnection::Handler {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnLaunched(uint64_t proc, int64_t pid) = 0;
    virtual void OnLaunchFailed(uint64_t proc, const std::string& step, const std::string& message) = 0;
    virtual void OnDying(uint64_t proc, const ProcExit& exit) = 0;
    virtual void OnExited(uint64_t proc, const ProcExit& exit) = 0;
    // The launcher is dead and reaped (pidfd); the link is of no use any more. Its workers die with it.
    virtual void OnLauncherGone() = 0;
  };
  // `events` outlives the link. The process is a child of this one, or was adopted: then `board` is its death
  // board, and Setup is not called.
  LauncherLink(EventLoop* loop, StartedLauncher process, const SessionId& session, Events* events,
               ScopedFd board = {});
  ~LauncherLink() override;

  // Once, before anything else. `fds`: the client's pidfd, stdout, stderr, and its output stream if it has
  // one; the caller's. No `resume`: its session ends with this daemon.
  void Setup(int64_t client_pid, const std::string& log_path, const Limits& limits, absl::Span<const int> fds,
             const LauncherResume* resume);
  // For the next daemon. The fds are the caller's. `proc`: all of its news is dealt with.
  void Keep(const std::string& key, Value::Map body, absl::Span<const int> fds);
  void Forget(const std::string& key, const ProcAddress* proc = nullptr);
  // What the launcher had told the daemon before.
  absl::Status Handle(const ControlMessage& message);
  // InvalidArgument: argv, env and boot do not fit a packet.
  absl::Status Launch(const ProcAddress& proc, const ProcessSpec& spec, const std::vector<std::string>& env,
                      const StartToken& token, const std::string& label, int socket);
  void Signal(const ProcAddress& proc, int signal);
  // What it needs to tell a death itself. The fds are the caller's.
  void AddDoorbell(const ProcAddress& proc, bool is_client, int doorbell);
  void Link(const ProcAddress& a, uint32_t bit_in_a, const ProcAddress& b, uint32_t bit_in_b);
  // It leaves the end of `proc` to the daemon, which knows why.
  void SetStopping(const ProcAddress& proc);
  // Its death board; -1: not known yet.
  int board() const { return board_.get(); }
  // Stops everything: workers are asked, the rest gets TERM now, KILL after `kill_after`; then the launcher
  // exits. If it does not, it is killed.
  void EndSession(const std::string& reason, absl::Duration kill_after);
  pid_t pid() const { return process_.pid; }
  // How the launcher ended, for people; once OnLauncherGone was called.
  const std::string& end() const { return end_; }

 private:
  absl::Status OnPacket(NativeConnection& connection, Packet packet) override;
  void OnClosed(NativeConnection& connection, const absl::Status& why) override;
  void OnPidfd();
  void Kill(const char* why);

  EventLoop* const loop_;
  const SessionId session_;
  Events* const events_;
  StartedLauncher process_;
  std::shared_ptr<NativeConnection> connection_;
  ScopedFd board_;
  uint32_t next_request_ = 1;
  bool ending_ = false;
  std::string end_ = "ended";
  EventLoop::TimerId kill_timer_ = 0;
};

}  // namespace monarch
