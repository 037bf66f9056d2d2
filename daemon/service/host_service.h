#pragma once

#include "proto/monarch/v1/host.grpc.pb.h"

namespace monarch {

// Answers what cannot change while the daemon lives, so without the control loop.
// Threading: immutable.
class HostService final : public v1::HostService::CallbackService {
 public:
  explicit HostService(v1::GetHostResponse host) : host_(std::move(host)) {}
  grpc::ServerUnaryReactor* GetHost(grpc::CallbackServerContext* context, const v1::GetHostRequest* request,
                                    v1::GetHostResponse* response) override;

 private:
  const v1::GetHostResponse host_;
};

struct DaemonContext;
v1::GetHostResponse DescribeHost(const DaemonContext& context);

}  // namespace monarch
