#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/control/control_channel.h"
#include "client/cpp/control/grpc_connection.h"
#include "proto/monarch/v1/process.grpc.pb.h"

namespace monarch {

// Threading: thread-safe.
class GrpcControlChannel final : public ControlChannel {
 public:
  GrpcControlChannel(GrpcConnection::OpenFd open_fd, const StartToken& token);

  absl::StatusOr<std::vector<SpawnedProc>> SpawnProcs(const SpawnRequest& request) override;
  absl::StatusOr<std::vector<FailureEvent>> StopProcs(const std::vector<ProcAddress>& procs,
                                                      absl::Duration grace, absl::Duration kill_after,
                                                      const std::string& reason) override;
  absl::Status SignalProcs(const std::vector<ProcAddress>& procs, int signal) override;
  absl::StatusOr<std::vector<ProcStatus>> ListProcs() override;
  absl::StatusOr<std::vector<ActorActivity>> ListActivities() override;
  absl::StatusOr<AttachedHost> AttachHost(const std::string& address, absl::Duration timeout) override;
  absl::Status ShutdownHost(const HostId& host, absl::Duration grace, absl::Duration kill_after) override;
  void Close() override { connection_.Drop(nullptr); }

 private:
  using Rpc = std::function<grpc::Status(v1::ProcessService::Stub&, grpc::ClientContext&)>;
  // Runs `rpc`, once more on a new connection if the present one turns out to be broken.
  absl::Status Call(absl::Duration timeout, const Rpc& rpc);

  const StartToken token_;
  GrpcConnection connection_;
};

}  // namespace monarch
