#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "message/doorbell.h"
#include "message/frame.h"

namespace monarch {

// A received frame: header and inline payload (empty with kFlagInSegment).
struct Frame {
  FrameHeader header;
  std::string payload;
};

enum class SendResult { kSent, kFull };

// An ordered, bounded, two-way stream of frames between two processes. Implementations: RingLink (shared
// memory), SocketLink (a native control socket or a socket pair). One conformance suite runs on both.
// Threading: Send calls are serialised by the caller, Receive calls likewise; both may run at the same time.
class Link {
 public:
  virtual ~Link() = default;

  // Inline payload of at most the link's payload_bytes_max(). kFull: nothing was sent, try after OnRoom was
  // signalled. InvalidArgument: too large, or not as long as the header says; the link stays usable. Other
  // errors are final: Unavailable (the peer is gone) or what PeerDied was told; Internal (the peer wrote
  // garbage).
  virtual absl::StatusOr<SendResult> TrySend(const FrameHeader& header,
                                             absl::Span<const uint8_t> payload) = 0;
  // Hands frames to `sink` in order until none is there or `frames_max` were taken; returns how many. After
  // the peer's death all that it had published comes first, then Unavailable or what PeerDied was told;
  // garbage is InvalidArgument or DataLoss, and final.
  virtual absl::StatusOr<size_t> Receive(size_t frames_max, absl::FunctionRef<void(Frame)> sink) = 0;
  // Asks to be told of room: after a kFull. False: no signal will come; send again now. The signal comes on
  // the wait word once half of the ring is free (RingLink) or as EPOLLOUT (SocketLink); not for a peer that
  // dies meanwhile.
  virtual bool RequestRoomSignal(uint32_t word) = 0;
  // The peer is known to be dead (from the daemon): what it published stays readable, then Receive reports
  // `reason`; sends fail at once.
  virtual void PeerDied(absl::Status reason) = 0;
  virtual size_t payload_bytes_max() const = 0;
};

}  // namespace monarch
