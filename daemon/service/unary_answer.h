#pragma once

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/status.h"
#include "proto/status_conversion.h"

namespace monarch {

// The duty to answer one call: exactly once, also when whoever was to answer is dropped because the daemon
// stops. Move-only. Threading: confined to its holder; may move between threads.
class UnaryAnswer {
 public:
  explicit UnaryAnswer(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}
  UnaryAnswer(UnaryAnswer&& other) noexcept : reactor_(std::exchange(other.reactor_, nullptr)) {}
  UnaryAnswer& operator=(UnaryAnswer&&) = delete;
  ~UnaryAnswer() {
    if (reactor_ != nullptr) Finish(absl::UnavailableError("monarchd is stopping"));
  }
  void Finish(const absl::Status& status) { std::exchange(reactor_, nullptr)->Finish(ToGrpcStatus(status)); }

 private:
  grpc::ServerUnaryReactor* reactor_;
};

}  // namespace monarch
