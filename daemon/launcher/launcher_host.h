#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/packet_socket.h"

namespace monarch {

// A launcher just started. If it is a child of this process, the caller reaps it once `pidfd` is readable.
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
  // Starts one, for a session of the user `uid`; it runs when this returns. Errors say which step failed.
  virtual absl::StatusOr<StartedLauncher> Start(const SessionId& session, uid_t uid) = 0;
};

}  // namespace monarch
