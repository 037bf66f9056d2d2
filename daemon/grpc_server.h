#pragma once

#include <memory>

#include "base/scoped_fd.h"
#include "daemon/daemon_context.h"
#include "daemon/peer_registry.h"
#include "daemon/session_manager.h"

namespace monarch {

// The control plane: a gRPC server without ports, which is given connected sockets, so that the kernel's word
// on who is behind each is known before its first request. Threading: confined to the control loop; the
// handlers run on gRPC's threads.
class GrpcServer {
 public:
  // Both outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(DaemonContext* context, SessionManager* sessions);
  virtual ~GrpcServer() = default;

  // Serves on a connected stream socket from now on. InvalidArgument: it is no stream socket.
  virtual absl::Status AddConnection(ScopedFd socket, const ControlPeer& peer) = 0;
  // Calls itself once: the first connection to a fresh server is slow, and this one nobody waits for.
  virtual void WarmUp() = 0;
  // Cuts off what is still being answered. After the loop's end.
  virtual void Shutdown() = 0;
};

}  // namespace monarch
