#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "message/ring.h"

namespace monarch {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kOneRingBytes = kPageBytes + kRingBytes;
constexpr size_t kTailAt = 0;
constexpr size_t kHeadAt = 64;
constexpr size_t kRoomWordAt = 128;
constexpr size_t kHeadFieldsBytes = 20;
// Every record takes at least its length and padding: 8 bytes.
constexpr size_t kPopsMax = kRingBytes / 8;

// A ring's memory with unmapped pages before and behind it: one byte out of bounds ends the test.
// Threading: confined to its caller.
class GuardedRing {
 public:
  GuardedRing() {
    void* all = mmap(nullptr, kOneRingBytes + 2 * kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MONARCH_CHECK(all != MAP_FAILED);
    ring_ = static_cast<uint8_t*>(all) + kPageBytes;
    MONARCH_CHECK(mprotect(ring_, kOneRingBytes, PROT_READ | PROT_WRITE) == 0);
  }
  uint8_t* get() const { return ring_; }

 private:
  uint8_t* ring_;
};

// Pops until nothing is left or the ring is refused. False: refused.
bool Drain(RingConsumer* consumer) {
  std::string record;
  for (size_t pops = 0;; ++pops) {
    MONARCH_CHECK(pops <= kPopsMax);
    const auto popped = consumer->TryPop(&record);
    if (!popped.ok()) {
      MONARCH_CHECK(popped.status().code() == absl::StatusCode::kDataLoss);
      return false;
    }
    if (!*popped) return true;
    MONARCH_CHECK(record.size() <= kRingBytes / 2);
  }
}

}  // namespace
}  // namespace monarch

// Input: tail (8), head (8), room word (4), then the ring's data, repeated until it is full.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  static const GuardedRing& ring = *new GuardedRing();
  if (size < kHeadFieldsBytes) return 0;
  uint8_t* memory = ring.get();
  std::memset(memory, 0, kPageBytes);
  std::memcpy(memory + kTailAt, data, 8);
  std::memcpy(memory + kHeadAt, data + 8, 8);
  std::memcpy(memory + kRoomWordAt, data + 16, 4);
  const uint8_t* content = data + kHeadFieldsBytes;
  const size_t content_bytes = size - kHeadFieldsBytes;
  uint8_t* area = memory + kPageBytes;
  std::memset(area, 0, kRingBytes);
  for (size_t at = 0; content_bytes > 0 && at < kRingBytes; at += content_bytes) {
    std::memcpy(area + at, content, std::min(content_bytes, kRingBytes - at));
  }

  RingConsumer consumer(memory);
  consumer.TakeRoomSignal();
  consumer.empty();
  const bool usable = Drain(&consumer);
  // The producer moves on, somewhere: forwards, backwards, too far.
  if (content_bytes >= 8) {
    std::memcpy(memory + kTailAt, content, 8);
    const bool usable_after = Drain(&consumer);
    MONARCH_CHECK(usable || !usable_after);
  }
  return 0;
}
