#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace monarch {

inline constexpr size_t kRingBytes = 16 * 1024;  // each way; a power of two
// A memfd for a link holds two rings: side 0 produces into the first, side 1 into the second. Layout in
// WIRE.md.
inline constexpr size_t kRingMemfdBytes = 2 * (4096 + kRingBytes);
// The bytes of a record: with its length they take at most half a ring, so half a ring is room for any.
inline constexpr size_t kRingRecordBytesMax = kRingBytes / 2 - 8;

// One direction: one producer, one consumer. What the other side wrote is hostile: indexes and lengths are
// copied, then checked. Threading: each side confined to one thread at a time (the caller's lock).
class RingProducer {
 public:
  // The ring is new, or nothing was ever produced into it.
  explicit RingProducer(uint8_t* ring);
  // head + tail as one record. False: no room. InvalidArgument: larger than kRingRecordBytesMax. Internal:
  // the consumer's index is nonsense (sticks).
  absl::StatusOr<bool> TryPush(absl::Span<const uint8_t> head, absl::Span<const uint8_t> tail);
  bool half_full() const;
  // Before waiting for room: the consumer then rings `word` of the producer's process once half of the ring
  // is free. Returns false if it is already (the next TryPush has room) or the consumer's index is nonsense.
  bool RequestRoomSignal(uint32_t word);

 private:
  // Bytes produced and not consumed; nothing if the consumer's index is nonsense.
  std::optional<size_t> Used() const;

  uint8_t* ring_;
  uint64_t tail_ = 0;
  absl::Status status_;
};

// The other end. Threading: confined to one thread at a time (the caller's lock).
class RingConsumer {
 public:
  // The ring is new, or nothing was ever consumed from it.
  explicit RingConsumer(uint8_t* ring);
  // The next record, copied into `out` (resized). False: empty. DataLoss: an index or a length is nonsense
  // (sticks).
  absl::StatusOr<bool> TryPop(std::string* out);
  // True too after an error: nothing more will come.
  bool empty() const;
  // Takes the producer's wish to be rung, if there is one and half of the ring is free; to be asked after
  // pops.
  std::optional<uint32_t> TakeRoomSignal();

 private:
  // Bytes produced and not consumed; nothing if the producer's index is nonsense.
  std::optional<size_t> Used() const;

  uint8_t* ring_;
  uint64_t head_ = 0;
  absl::Status status_;
};

}  // namespace monarch
