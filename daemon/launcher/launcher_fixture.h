#pragma once

#include <sys/types.h>

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/scoped_fd.h"
#include "daemon/launcher/launcher_host.h"
#include "daemon/launcher/launcher_messages.h"
#include "daemon/launcher/session_cgroup.h"

namespace monarch {

// What a launcher is started for. Plain data.
struct LauncherFixtureOptions {
  uint64_t log_bytes_max = 0;  // 0: without a worker log
  bool use_cgroup = true;      // where one can be had
};

// A real launcher, with this test as its daemon and a pausing child as the client. Every wait is bounded.
// Threading: confined to the test.
class LauncherFixture {
 public:
  explicit LauncherFixture(LauncherFixtureOptions options = {});
  // Ends what is left.
  ~LauncherFixture();

  LaunchRequest Request(std::vector<std::string> argv);
  LaunchRequest Shell(const std::string& script) { return Request({"sh", "-c", script}); }
  LaunchRequest Helper(const std::string& what);
  // Returns this test's end of the worker's daemon socket.
  PacketSocket Launch(const LaunchRequest& request);
  // Launches and waits for the pid.
  pid_t LaunchOk(const LaunchRequest& request);

  void Send(ControlType type, uint32_t request, Value body, std::vector<int> fds = {});
  // The next message, whatever it is.
  ControlMessage Next();
  ControlMessage Next(ControlType wanted);
  // Until one of this type; the others are dropped.
  ControlMessage Await(ControlType wanted);
  WorkerExit AwaitExit();

  // Reads the client's stdout (stderr) until `wanted` is in it; all that was read since the last call.
  std::string ReadOut(const std::string& wanted) { return ReadUntil(out_reader_.get(), &out_text_, wanted); }
  std::string ReadErr(const std::string& wanted) { return ReadUntil(err_reader_.get(), &err_text_, wanted); }
  // Whether all writers of the client's stdout are gone.
  bool OutEnds();

  void KillClient();
  void CloseDaemonSocket() { launcher_.socket = PacketSocket(); }
  PacketSocket& daemon_socket() { return launcher_.socket; }
  void SignalLauncher(int signal);
  // Waits for the launcher's end and reaps it.
  ExitStatus WaitLauncher();
  pid_t launcher_pid() const { return launcher_.pid; }
  const SessionId& session() const { return session_; }
  // Whether the session's workers have a cgroup.
  bool HasCgroup() const { return SessionCgroup::Find(session_).exists(); }
  std::string log_path() const { return dir_ + "/log"; }

 private:
  static std::string ReadUntil(int fd, std::string* text, const std::string& wanted);
  void MakeClient();

  const SessionId session_ = SessionId::Random();
  const HostId host_ = HostId::Random();
  std::string dir_;
  ScopedFd out_reader_;
  ScopedFd err_reader_;
  std::string out_text_;
  std::string err_text_;
  pid_t client_ = -1;
  ScopedFd client_pidfd_;
  StartedLauncher launcher_;
  bool launcher_reaped_ = false;
  uint64_t next_proc_ = 1;
};

// A pidfd of any process; waits for its end.
// Threading: confined to the test.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t pid);
  bool Ended();
  // As it is now, without waiting.
  bool Runs();

 private:
  ScopedFd pidfd_;
};

// Path of a file that was built for the test.
std::string Runfile(const std::string& name);

}  // namespace monarch
