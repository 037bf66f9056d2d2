#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"

namespace monarch {

// Bytes a control message's body may have when it travels in a memfd; of the types for which WIRE.md allows
// it.
constexpr size_t kLargeBodyBytesMax = 4 * 1024 * 1024;

// If the message is larger than a packet, moves its body into a sealed memfd, which is then to be sent as the
// last fd; else the result holds none. ResourceExhausted, naming the limit, above kLargeBodyBytesMax; the
// message is then as before.
absl::StatusOr<ScopedFd> MoveLargeBodyOut(ControlMessage* message);

// The receiver's side: if the body is in a memfd, takes that off `fds` and puts the body into the message.
// Input is hostile: FailedPrecondition or InvalidArgument for a fd that is no sealed memfd of the announced
// size, or holds no body.
absl::Status MoveLargeBodyIn(ControlMessage* message, std::vector<ScopedFd>* fds);

}  // namespace monarch
