#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/limits.h"
#include "client/cpp/runtime/handshake.h"
#include "client/cpp/runtime/runtime.h"
#include "message/packet_socket.h"

namespace monarch {

// The client's half of a start, once there is a socket to a daemon: shared pages, service thread (which takes
// the life-line before anybody can watch it), hello. `private_daemon` becomes the runtime's to reap.
absl::StatusOr<std::unique_ptr<Runtime>> StartClientOn(PacketSocket socket,
                                                       const ClientProcess& private_daemon,
                                                       const Hello& hello, absl::Duration timeout,
                                                       const Limits& limits);

}  // namespace monarch
