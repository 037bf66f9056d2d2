#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/scoped_fd.h"
#include "message/link.h"

namespace monarch {

// A pair of rings in one memfd, and the peer's doorbell. `side` is 0 or 1; `peer_bit` is the news bit that we
// set in the peer's doorbell. Which word a frame rings is the caller's knowledge (TrySendAndRing); plain
// TrySend rings the reply word of answers (reply, exception, failure) and the service word for all else. A
// frame that is urgent or leaves the ring half full rings the bell too.
struct RingLinkOptions {
  int side = 0;
  uint32_t peer_bit = 0;
};

// Threading: as Link.
class RingLink : public Link {
 public:
  // The memfd is new, and checked before it is mapped. `peer` is shared with whoever else rings that process.
  static absl::StatusOr<std::unique_ptr<RingLink>> Create(ScopedFd ring_memfd, std::shared_ptr<Doorbell> peer,
                                                          const RingLinkOptions& options);
  // Publishes like TrySend and rings the peer's word that `word` names: one wake-up at most. It is asked once
  // the frame is visible, because who sleeps for an actor may change at any time (Doorbell::SetDefaultWord).
  virtual absl::StatusOr<SendResult> TrySendAndRing(const FrameHeader& header,
                                                    absl::Span<const uint8_t> payload,
                                                    absl::FunctionRef<uint32_t()> word) = 0;
};

}  // namespace monarch
