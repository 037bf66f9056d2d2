#pragma once

#include "daemon/control_peers.h"
#include "daemon/daemon_context.h"
#include "daemon/session_manager.h"
#include "proto/monarch/v1/process.grpc.pb.h"

namespace monarch {

// Validates and translates; the sessions on the control loop do the work and answer.
// Threading: thread-safe (handlers run on gRPC's threads, answers come from the loop).
class ProcessService final : public v1::ProcessService::CallbackService {
 public:
  // Both outlive the service.
  ProcessService(DaemonContext* context, SessionManager* sessions) : context_(context), sessions_(sessions) {}

  grpc::ServerUnaryReactor* SpawnProcs(grpc::CallbackServerContext* context,
                                       const v1::SpawnProcsRequest* request,
                                       v1::SpawnProcsResponse* response) override;
  grpc::ServerUnaryReactor* StopProcs(grpc::CallbackServerContext* context,
                                      const v1::StopProcsRequest* request,
                                      v1::StopProcsResponse* response) override;
  grpc::ServerUnaryReactor* SignalProcs(grpc::CallbackServerContext* context,
                                        const v1::SignalProcsRequest* request,
                                        v1::SignalProcsResponse* response) override;
  grpc::ServerUnaryReactor* ListProcs(grpc::CallbackServerContext* context,
                                      const v1::ListProcsRequest* request,
                                      v1::ListProcsResponse* response) override;
  grpc::ServerUnaryReactor* AttachHost(grpc::CallbackServerContext* context,
                                       const v1::AttachHostRequest* request,
                                       v1::AttachHostResponse* response) override;
  grpc::ServerUnaryReactor* ShutdownHost(grpc::CallbackServerContext* context,
                                         const v1::ShutdownHostRequest* request,
                                         v1::ShutdownHostResponse* response) override;

 private:
  // None: it names no token, or that of a process that is gone.
  std::optional<ControlPeer> FindPeer(const grpc::CallbackServerContext& context) const;
  // PermissionDenied: the request is nobody's, so it may only list.
  absl::StatusOr<ControlPeer> SessionPeer(const grpc::CallbackServerContext& context) const;

  DaemonContext* const context_;
  SessionManager* const sessions_;
};

}  // namespace monarch
