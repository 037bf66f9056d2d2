#pragma once

#include <grpcpp/channel.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/scoped_fd.h"

namespace monarch {

// One gRPC channel at a time, opened when asked for and dropped by a thread of its own after `idle` without
// users: an idle channel would keep gRPC's threads and a socket in every client for its whole life.
// Threading: thread-safe.
class GrpcConnection {
 public:
  using OpenFd = std::function<absl::StatusOr<ScopedFd>()>;
  GrpcConnection(OpenFd open_fd, absl::Duration idle);
  ~GrpcConnection();
  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  // Each Acquire that succeeds is followed by one Release.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Acquire();
  void Release();
  // The connection is broken, or not wanted; null: whichever there is. Calls on it go on until they end.
  void Drop(const grpc::Channel* channel);

 private:
  void Reap();

  // Constant after construction.
  const OpenFd open_fd_;
  const absl::Duration idle_;
  const SystemClock clock_;

  // Guarded by mu_. std's types for the sake of the timed wait.
  std::mutex mu_;
  std::condition_variable changed_;
  std::shared_ptr<grpc::Channel> channel_;
  int users_ = 0;
  absl::Duration idle_since_;
  bool reaping_ = false;
  bool ending_ = false;
  std::thread reaper_;
};

}  // namespace monarch
