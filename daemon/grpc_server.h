#pragma once

#include <memory>
#include <string>

#include "base/scoped_fd.h"
#include "daemon/daemon_context.h"
#include "daemon/session_manager.h"

namespace monarch {

// The control plane: a gRPC server without ports, which is given connected sockets. Threading: confined to
// the control loop; the handlers run on gRPC's threads.
class GrpcServer {
 public:
  // Both outlive the server. `lists_all`: it answers questions about all sessions.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(DaemonContext* context, SessionManager* sessions,
                                                           bool lists_all);
  virtual ~GrpcServer() = default;

  // Serves on a connected stream socket from now on, which counts as `owner`'s. InvalidArgument: it is no
  // stream socket. ResourceExhausted: the owner has control_connections_per_proc_max open.
  virtual absl::Status AddConnection(ScopedFd socket, const std::string& owner) = 0;
  // Calls itself once: the first connection to a fresh server is slow, and this one nobody waits for.
  virtual void WarmUp() = 0;
  // Cuts off what is still being answered. After the loop's end.
  virtual void Shutdown() = 0;
};

}  // namespace monarch
