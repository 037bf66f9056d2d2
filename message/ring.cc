#include "message/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

constexpr size_t kTailAt = 0;
constexpr size_t kHeadAt = 64;
constexpr size_t kRoomWordAt = 128;
constexpr size_t kDataAt = 4096;
constexpr size_t kLengthBytes = 4;
constexpr size_t kAlign = 8;

static_assert((kRingBytes & (kRingBytes - 1)) == 0 && kRingBytes % kAlign == 0);

// A record's length, bytes and padding.
constexpr size_t RecordBytes(size_t length) { return (kLengthBytes + length + kAlign - 1) / kAlign * kAlign; }
static_assert(RecordBytes(kRingRecordBytesMax) <= kRingBytes / 2);

std::atomic_ref<uint64_t> Tail(uint8_t* ring) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(ring + kTailAt));
}
std::atomic_ref<uint64_t> Head(uint8_t* ring) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(ring + kHeadAt));
}
std::atomic_ref<uint32_t> RoomWordPlus1(uint8_t* ring) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(ring + kRoomWordAt));
}

// Both take the position in the stream, and wrap at the end of the data.
void CopyIn(uint8_t* ring, uint64_t position, absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  const size_t at = position % kRingBytes;
  const size_t first = std::min(bytes.size(), kRingBytes - at);
  std::memcpy(ring + kDataAt + at, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(ring + kDataAt, bytes.data() + first, bytes.size() - first);
}

void CopyOut(const uint8_t* ring, uint64_t position, size_t length, std::string* out) {
  const char* data = reinterpret_cast<const char*>(ring + kDataAt);
  const size_t at = position % kRingBytes;
  const size_t first = std::min(length, kRingBytes - at);
  out->assign(data + at, first);
  out->append(data, length - first);
}

// `produced` - `consumed`, if both can be what they say.
std::optional<size_t> Difference(uint64_t produced, uint64_t consumed) {
  const uint64_t used = produced - consumed;
  if (used > kRingBytes || used % kAlign != 0) return std::nullopt;
  return static_cast<size_t>(used);
}

}  // namespace

RingProducer::RingProducer(uint8_t* ring) : ring_(ring) {}

std::optional<size_t> RingProducer::Used() const { return Difference(tail_, Head(ring_).load()); }

absl::StatusOr<bool> RingProducer::TryPush(absl::Span<const uint8_t> head, absl::Span<const uint8_t> tail) {
  if (!status_.ok()) return status_;
  if (head.size() > kRingRecordBytesMax || tail.size() > kRingRecordBytesMax - head.size()) {
    return absl::InvalidArgumentError(absl::StrCat("ring: record of ", head.size(), " + ", tail.size(),
                                                   " bytes, at most ", kRingRecordBytesMax));
  }
  const std::optional<size_t> used = Used();
  if (!used) {
    status_ = absl::InternalError("ring: the consumer's index is nonsense");
    return status_;
  }
  const auto length = static_cast<uint32_t>(head.size() + tail.size());
  if (RecordBytes(length) > kRingBytes - *used) return false;
  // Records begin at multiples of 8, so the length is never split.
  std::memcpy(ring_ + kDataAt + tail_ % kRingBytes, &length, kLengthBytes);
  CopyIn(ring_, tail_ + kLengthBytes, head);
  CopyIn(ring_, tail_ + kLengthBytes + head.size(), tail);
  tail_ += RecordBytes(length);
  Tail(ring_).store(tail_, std::memory_order_release);
  return true;
}

bool RingProducer::half_full() const { return Used().value_or(kRingBytes) >= kRingBytes / 2; }

// Sequentially consistent on both sides: the producer stores its wish, then looks at the head; the consumer
// stores the head, then looks for a wish. One of the two sees the other, so no signal is lost.
bool RingProducer::RequestRoomSignal(uint32_t word) {
  RoomWordPlus1(ring_).exchange(word + 1);
  const std::optional<size_t> used = Used();
  if (used && *used > kRingBytes / 2) return true;
  RoomWordPlus1(ring_).exchange(0);
  return false;
}

RingConsumer::RingConsumer(uint8_t* ring) : ring_(ring) {}

std::optional<size_t> RingConsumer::Used() const { return Difference(Tail(ring_).load(), head_); }

absl::StatusOr<bool> RingConsumer::TryPop(std::string* out) {
  if (!status_.ok()) return status_;
  const std::optional<size_t> used = Used();
  if (used && *used == 0) return false;
  // Copied before it is checked, and not read again: the producer may change it at any time.
  uint32_t length = 0;
  std::memcpy(&length, ring_ + kDataAt + head_ % kRingBytes, kLengthBytes);
  if (!used || length > kRingRecordBytesMax || RecordBytes(length) > *used) {
    status_ =
        absl::DataLossError(used ? absl::StrCat("ring: record of ", length, " bytes, ", *used, " are there")
                                 : "ring: the producer's index is nonsense");
    return status_;
  }
  CopyOut(ring_, head_ + kLengthBytes, length, out);
  head_ += RecordBytes(length);
  Head(ring_).exchange(head_);
  return true;
}

bool RingConsumer::empty() const { return !status_.ok() || Tail(ring_).load() == head_; }

std::optional<uint32_t> RingConsumer::TakeRoomSignal() {
  if (RoomWordPlus1(ring_).load() == 0) return std::nullopt;
  if (Used().value_or(kRingBytes) > kRingBytes / 2) return std::nullopt;
  const uint32_t word_plus_1 = RoomWordPlus1(ring_).exchange(0);
  if (word_plus_1 == 0) return std::nullopt;
  return word_plus_1 - 1;
}

}  // namespace monarch
