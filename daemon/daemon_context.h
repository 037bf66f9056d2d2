#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/pidfd.h"
#include "base/scoped_fd.h"
#include "daemon/control_peers.h"
#include "daemon/event_log.h"
#include "daemon/host_control.h"
#include "daemon/launcher/launcher_host.h"
#include "daemon/native_connection.h"
#include "daemon/sweeper.h"

namespace monarch {

// What all sessions share. Made by the composition root, which keeps everything it points to alive.
// Threading: confined to the control loop, but for the constants.
struct DaemonContext {
  // Constant.
  EventLoop* loop = nullptr;
  LauncherHost* launchers = nullptr;
  EventLog* events = nullptr;
  ControlPeers* control_peers = nullptr;  // thread-safe
  Sweeper* sweeper = nullptr;
  Limits limits;
  HostId host;
  std::string host_name;
  std::string run_dir;
  bool is_private = false;
  bool survives = false;   // sessions outlive this daemon: the next one in this run directory takes them over
  bool is_system = false;  // for all users of the host
  bool allow_root = false;
  absl::Duration started;
  // A channel for requests to another daemon, over a connected socket, in the name of the token's owner
  // there.
  std::function<std::unique_ptr<HostControl>(ScopedFd, const StartToken& token)> make_host_control;
  // The kernel's part, which a simulation plays itself.
  std::function<absl::StatusOr<ScopedFd>(pid_t)> open_pidfd = OpenPidfd;
  std::function<Id128()> random_id = Id128::Random;
  // Ends this daemon, where others may ask for that; null elsewhere.
  std::function<void(const std::string& reason)> leave;

  // Confined to the loop.
  uint64_t next_proc = 1;  // numbers are never used twice on one host
  int64_t workers = 0;

  NativeConnection::Limits connection_limits() const {
    NativeConnection::Limits out;
    out.control_bytes_max = static_cast<size_t>(limits.control_queue_bytes_max);
    out.frame_bytes_max = static_cast<size_t>(limits.relay_proc_queue_bytes_max);
    return out;
  }
};

}  // namespace monarch
