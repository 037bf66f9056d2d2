#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "message/link.h"
#include "message/packet_socket.h"

namespace monarch {

// Frames over a PacketSocket of their own: where there is no shared memory. One packet, one frame.
// (Frames that share a native control socket with control messages are sent and received by the socket's
// owner.)
std::unique_ptr<Link> MakeSocketLink(PacketSocket socket);

}  // namespace monarch
