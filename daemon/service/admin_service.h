#pragma once

#include "daemon/daemon_context.h"
#include "daemon/session_manager.h"
#include "proto/monarch/v1/admin.grpc.pb.h"

namespace monarch {

// What monarchctl shows, and what it stops; read from the control loop's state.
// Threading: thread-safe (handlers run on gRPC's threads, answers come from the loop).
class AdminService final : public v1::AdminService::CallbackService {
 public:
  AdminService(DaemonContext* context, SessionManager* sessions) : context_(context), sessions_(sessions) {}
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* GetTree(grpc::CallbackServerContext* context, const v1::GetTreeRequest* request,
                                    v1::GetTreeResponse* response) override;
  grpc::ServerUnaryReactor* GetFailures(grpc::CallbackServerContext* context,
                                        const v1::GetFailuresRequest* request,
                                        v1::GetFailuresResponse* response) override;
  grpc::ServerUnaryReactor* StopSession(grpc::CallbackServerContext* context,
                                        const v1::StopSessionRequest* request,
                                        v1::StopSessionResponse* response) override;

 private:
  DaemonContext* const context_;
  SessionManager* const sessions_;
};

}  // namespace monarch
