#include "client/cpp/runtime/payload_block.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"

namespace monarch {
namespace {

constexpr size_t kReleaseCountMax = 64;
constexpr uint64_t kReleaseBytesMax = 1 << 20;
constexpr size_t kLargeBytes = 4096;
constexpr std::align_val_t kAlignment{64};

// Parts of 4 KiB and more lie at multiples of 64. What cannot hold one takes the allocator's own alignment,
// which is a good deal cheaper.
uint8_t* NewBytes(size_t size) {
  return static_cast<uint8_t*>(size < kLargeBytes ? ::operator new(size) : ::operator new(size, kAlignment));
}

void DeleteBytes(uint8_t* bytes, size_t size) {
  if (size < kLargeBytes) {
    ::operator delete(bytes);
  } else {
    ::operator delete(bytes, kAlignment);
  }
}

// Threading: as PayloadBytes.
class OwnBytes : public PayloadBytes {
 public:
  explicit OwnBytes(absl::Span<const uint8_t> bytes) : size_(bytes.size()), data_(NewBytes(size_)) {
    if (size_ != 0) std::memcpy(data_, bytes.data(), size_);
  }
  ~OwnBytes() override { DeleteBytes(data_, size_); }
  absl::Span<uint8_t> bytes() override { return {data_, size_}; }

 private:
  const size_t size_;
  uint8_t* const data_;
};

// Threading: as PayloadBytes.
class BorrowedBytes : public PayloadBytes {
 public:
  BorrowedBytes(std::shared_ptr<PeerSegment> segment, absl::Span<uint8_t> block, uint64_t offset,
                const ProcAddress& owner, bool shared, std::shared_ptr<ReleaseQueue> releases)
      : segment_(std::move(segment)),
        block_(block),
        offset_(offset),
        owner_(owner),
        shared_(shared),
        releases_(std::move(releases)) {}
  ~BorrowedBytes() override { releases_->Add(owner_, offset_, block_.size()); }
  absl::Span<uint8_t> bytes() override { return block_; }
  bool shared() const override { return shared_; }

 private:
  const std::shared_ptr<PeerSegment> segment_;
  const absl::Span<uint8_t> block_;
  const uint64_t offset_;
  const ProcAddress owner_;
  const bool shared_;
  const std::shared_ptr<ReleaseQueue> releases_;
};

}  // namespace

void ReleaseQueue::Add(const ProcAddress& owner, uint64_t offset, uint64_t bytes) {
  if (fork_.in_child()) return;
  bool first = false;
  bool soon = false;
  {
    MutexLock lock(mu_);
    offsets_[owner].push_back(offset);
    bytes_ += bytes;
    ++count_;
    first = count_ == 1;
    // At the moment of crossing only: afterwards somebody is on the way.
    soon = count_ == kReleaseCountMax || (bytes_ >= kReleaseBytesMax && bytes_ - bytes < kReleaseBytesMax);
  }
  if (first || soon) wake_(soon);
}

std::map<ProcAddress, std::vector<uint64_t>> ReleaseQueue::Take() {
  MutexLock lock(mu_);
  bytes_ = 0;
  count_ = 0;
  return std::exchange(offsets_, {});
}

std::shared_ptr<PayloadBytes> CopyPayload(absl::Span<const uint8_t> bytes) {
  return std::make_shared<OwnBytes>(bytes);
}

std::shared_ptr<PayloadBytes> BorrowPayload(std::shared_ptr<PeerSegment> segment, absl::Span<uint8_t> block,
                                            uint64_t offset, const ProcAddress& owner, bool shared,
                                            std::shared_ptr<ReleaseQueue> releases) {
  return std::make_shared<BorrowedBytes>(std::move(segment), block, offset, owner, shared,
                                         std::move(releases));
}

Message MakeMessage(const FrameHeader& header, std::string_view meta) {
  Message message;
  message.header = header;
  if (meta.empty()) return message;
  const PayloadWriter writer(meta, {});
  std::string bytes(writer.size(), '\0');
  writer.WriteTo(reinterpret_cast<uint8_t*>(bytes.data()));
  message.payload = CopyPayload({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  message.header.payload_length = bytes.size();
  auto view = PayloadView::Parse(message.payload->bytes());
  MONARCH_CHECK(view.ok());
  message.view = *std::move(view);
  return message;
}

}  // namespace monarch
