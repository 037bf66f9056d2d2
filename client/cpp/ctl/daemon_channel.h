#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/ctl/daemon_finder.h"

namespace monarch::ctl {

// A channel to the daemon at `place`. Connects when it is first used. What one answer may hold is bounded.
std::shared_ptr<grpc::Channel> OpenChannel(const DaemonPlace& place);

// What a call that had `timeout` ended with, in words for people.
absl::Status CallStatus(const grpc::Status& status, absl::Duration timeout);

}  // namespace monarch::ctl
