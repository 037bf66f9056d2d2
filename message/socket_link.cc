#include "message/socket_link.h"

#include <poll.h>

#include <atomic>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace monarch {
namespace {

constexpr size_t kInlineBytesMax = PacketSocket::kPacketBytesMax - kFrameHeaderBytes;

size_t InlineLength(const FrameHeader& header) {
  return (header.flags & kFlagInSegment) != 0 ? 0 : header.payload_length;
}

absl::StatusOr<Frame> FrameFromPacket(const Packet& packet) {
  if (!packet.fds.empty()) return absl::InvalidArgumentError("socket link: a frame with fds");
  const auto* bytes = reinterpret_cast<const uint8_t*>(packet.bytes.data());
  // The packet itself bounds what is inline; what is in a segment is checked against the segment.
  auto header = DecodeFrameHeader({bytes, packet.bytes.size()}, std::numeric_limits<uint64_t>::max());
  if (!header.ok()) return header.status();
  const size_t found = packet.bytes.size() - kFrameHeaderBytes;
  if (found != InlineLength(*header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket link: payload of ", found, " bytes, the header says ", InlineLength(*header)));
  }
  return Frame{*header, packet.bytes.substr(kFrameHeaderBytes)};
}

// Threading: as Link; PeerDied from any thread (death_mu_).
class SocketLink : public Link {
 public:
  explicit SocketLink(PacketSocket socket) : socket_(std::move(socket)) {}

  absl::StatusOr<SendResult> TrySend(const FrameHeader& header, absl::Span<const uint8_t> payload) override {
    if (peer_dead_.load()) return death();
    if (payload.size() != InlineLength(header)) {
      return absl::InvalidArgumentError(absl::StrCat("socket link: payload of ", payload.size(),
                                                     " bytes, the header says ", InlineLength(header)));
    }
    if (payload.size() > kInlineBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("socket link: payload of ", payload.size(), " bytes, at most ", kInlineBytesMax));
    }
    uint8_t head[kFrameHeaderBytes];
    EncodeFrameHeader(header, absl::MakeSpan(head));
    auto sent = socket_.TrySend({reinterpret_cast<const char*>(head), sizeof(head)},
                                {reinterpret_cast<const char*>(payload.data()), payload.size()}, {});
    if (!sent.ok()) return sent.status();
    return *sent ? SendResult::kSent : SendResult::kFull;
  }

  absl::StatusOr<size_t> Receive(size_t frames_max, absl::FunctionRef<void(Frame)> sink) override {
    size_t taken = 0;
    while (taken < frames_max) {
      const absl::StatusOr<bool> received = ReceiveOne(sink);
      // An error sticks, so the next call reports it; this one reports the frames.
      if (!received.ok() && taken == 0) return received.status();
      if (!received.ok() || !*received) break;
      ++taken;
    }
    return taken;
  }

  bool RequestRoomSignal(uint32_t /*word*/) override {
    pollfd entry = {socket_.fd(), POLLOUT, 0};
    return poll(&entry, 1, 0) == 0;
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
    // Looked at first: what the peer sent before it died is in the socket by then, so an empty socket is the
    // end.
    const bool peer_dead = peer_dead_.load();
    Packet packet;
    auto received = socket_.TryReceive(&packet);
    if (!received.ok()) {
      return peer_dead && absl::IsUnavailable(received.status()) ? death() : received.status();
    }
    if (!*received && peer_dead) return death();
    if (!*received) return false;
    auto frame = FrameFromPacket(packet);
    if (!frame.ok()) {
      garbage_ = frame.status();
      return garbage_;
    }
    sink(*std::move(frame));
    return true;
  }

  absl::Status death() {
    MutexLock lock(death_mu_);
    return death_;
  }

  PacketSocket socket_;
  // Confined to the receiving side.
  absl::Status garbage_;

  std::atomic<bool> peer_dead_{false};
  Mutex death_mu_;
  absl::Status death_ ABSL_GUARDED_BY(death_mu_);
};

}  // namespace

std::unique_ptr<Link> MakeSocketLink(PacketSocket socket) {
  return std::make_unique<SocketLink>(std::move(socket));
}

}  // namespace monarch
