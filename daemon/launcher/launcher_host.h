#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/packet_socket.h"

namespace monarch {

// A launcher just started. The caller reaps it (it is a child of this process) once `pidfd` is readable.
struct StartedLauncher {
  pid_t pid = -1;
  ScopedFd pidfd;
  PacketSocket socket;  // the daemon's end of its control socket; kSetup goes first
};

// How a session's launcher comes to run on this host.
// Threading: implementations are thread-safe.
class LauncherHost {
 public:
  virtual ~LauncherHost() = default;
  // Starts one; it runs when this returns. Errors say which step failed.
  virtual absl::StatusOr<StartedLauncher> Start(const SessionId& session) = 0;
};

}  // namespace monarch
