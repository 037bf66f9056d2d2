#include "message/ring_link.h"

#include <atomic>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "message/ring.h"

namespace monarch {
namespace {

constexpr size_t kInlineBytesMax = kRingRecordBytesMax - kFrameHeaderBytes;
constexpr size_t kOneRingBytes = kRingMemfdBytes / 2;

size_t InlineLength(const FrameHeader& header) {
  return (header.flags & kFlagInSegment) != 0 ? 0 : header.payload_length;
}

// Only an answer's reply word is one of the receiver's.
bool IsAnswer(FrameKind kind) {
  return kind == FrameKind::kReply || kind == FrameKind::kException || kind == FrameKind::kFailure;
}

absl::Status ParseFrame(const std::string& record, Frame* frame) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(record.data());
  // The record itself bounds what is inline; what is in a segment is checked against the segment.
  MONARCH_ASSIGN_OR_RETURN(frame->header,
                           DecodeFrameHeader({bytes, record.size()}, std::numeric_limits<uint64_t>::max()));
  const size_t found = record.size() - kFrameHeaderBytes;
  if (found != InlineLength(frame->header)) {
    return absl::InvalidArgumentError(absl::StrCat("ring link: payload of ", found,
                                                   " bytes, the header says ", InlineLength(frame->header)));
  }
  frame->payload.assign(record, kFrameHeaderBytes);
  return absl::OkStatus();
}

// Threading: as Link; PeerDied from any thread (death_mu_).
class SharedMemoryRingLink : public RingLink {
 public:
  SharedMemoryRingLink(Mapping mapping, std::shared_ptr<Doorbell> peer, const RingLinkOptions& options)
      : mapping_(std::move(mapping)),
        peer_(std::move(peer)),
        peer_bit_(options.peer_bit),
        producer_(mapping_.data() + (options.side == 0 ? 0 : kOneRingBytes)),
        consumer_(mapping_.data() + (options.side == 0 ? kOneRingBytes : 0)) {}

  absl::StatusOr<SendResult> TrySend(const FrameHeader& header, absl::Span<const uint8_t> payload) override {
    return TrySendAndRing(header, payload,
                          [&] { return IsAnswer(header.kind) ? header.reply_word : kServiceWord; });
  }

  absl::StatusOr<SendResult> TrySendAndRing(const FrameHeader& header, absl::Span<const uint8_t> payload,
                                            absl::FunctionRef<uint32_t()> word) override {
    if (peer_dead_.load()) return death();
    if (payload.size() != InlineLength(header)) {
      return absl::InvalidArgumentError(absl::StrCat("ring link: payload of ", payload.size(),
                                                     " bytes, the header says ", InlineLength(header)));
    }
    if (payload.size() > kInlineBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("ring link: payload of ", payload.size(), " bytes, at most ", kInlineBytesMax));
    }
    uint8_t head[kFrameHeaderBytes];
    EncodeFrameHeader(header, absl::MakeSpan(head));
    MONARCH_ASSIGN_OR_RETURN(const bool pushed, producer_.TryPush(head, payload));
    if (!pushed) return SendResult::kFull;
    peer_->SetNews(peer_bit_);
    // Half full: whoever sleeps on the word may be busy with user code, and the service thread is not.
    peer_->RingWord(word(), (header.flags & kFlagUrgent) != 0 || producer_.half_full());
    return SendResult::kSent;
  }

  absl::StatusOr<size_t> Receive(size_t frames_max, absl::FunctionRef<void(Frame)> sink) override {
    size_t taken = 0;
    absl::Status status;
    while (taken < frames_max) {
      const absl::StatusOr<bool> received = ReceiveOne(sink);
      status = received.status();
      if (!received.ok() || !*received) break;
      ++taken;
    }
    if (const auto word = consumer_.TakeRoomSignal(); word && !peer_dead_.load()) {
      // With our news bit, which makes the woken one look at this link; it finds room, and perhaps frames.
      peer_->Ring(peer_bit_, *word, false);
    }
    // An error sticks, so the next call reports it; this one reports the frames.
    if (!status.ok() && taken == 0) return status;
    return taken;
  }

  bool RequestRoomSignal(uint32_t word) override {
    // The dead make no room; the next send fails at once.
    return !peer_dead_.load() && producer_.RequestRoomSignal(word);
  }

  void PeerDied(absl::Status reason) override {
    MutexLock lock(death_mu_);
    if (!death_.ok()) return;
    death_ = reason.ok() ? absl::UnavailableError("the peer has died") : std::move(reason);
    peer_dead_.store(true);
  }

  size_t payload_bytes_max() const override { return kInlineBytesMax; }

 private:
  // False: nothing is there now. Errors are final.
  absl::StatusOr<bool> ReceiveOne(absl::FunctionRef<void(Frame)> sink) {
    if (!garbage_.ok()) return garbage_;
    // Looked at first: what the peer published before it died is in the ring by then, so an empty ring is the
    // end.
    const bool peer_dead = peer_dead_.load();
    MONARCH_ASSIGN_OR_RETURN(const bool popped, consumer_.TryPop(&record_));
    if (!popped && peer_dead) return death();
    if (!popped) return false;
    Frame frame;
    garbage_ = ParseFrame(record_, &frame);
    if (!garbage_.ok()) return garbage_;
    sink(std::move(frame));
    return true;
  }

  absl::Status death() {
    MutexLock lock(death_mu_);
    return death_;
  }

  const Mapping mapping_;
  const std::shared_ptr<Doorbell> peer_;
  const uint32_t peer_bit_;

  // Confined to the sending side.
  RingProducer producer_;
  // Confined to the receiving side.
  RingConsumer consumer_;
  std::string record_;
  absl::Status garbage_;

  std::atomic<bool> peer_dead_{false};
  Mutex death_mu_;
  absl::Status death_ ABSL_GUARDED_BY(death_mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<RingLink>> RingLink::Create(ScopedFd ring_memfd,
                                                           std::shared_ptr<Doorbell> peer,
                                                           const RingLinkOptions& options) {
  MONARCH_CHECK(peer != nullptr);
  if (options.side != 0 && options.side != 1) {
    return absl::InvalidArgumentError(absl::StrCat("ring link: side ", options.side));
  }
  if (options.peer_bit >= kRingBits) {
    return absl::InvalidArgumentError(absl::StrCat("ring link: news bit ", options.peer_bit));
  }
  MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(ring_memfd.get(), kRingMemfdBytes, kRingMemfdBytes).status());
  MONARCH_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(ring_memfd.get(), kRingMemfdBytes));
  return std::make_unique<SharedMemoryRingLink>(std::move(mapping), std::move(peer), options);
}

}  // namespace monarch
