#include "daemon/peer_link.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "message/bytes.h"
#include "message/memfd.h"

namespace monarch {
namespace {

constexpr std::string_view kPieceMagic = "MNB1";
constexpr size_t kPieceHeadBytes = 8;
constexpr size_t kPieceBytes = 60 * 1024;
// Pieces queued at the socket; further ones are read from their segments when these are gone.
constexpr size_t kWindowBytes = 256 * 1024;
// Payloads under way at a time; more than pairs of processes that talk, less than fds.
constexpr size_t kIncomingMax = 4096;
// Several in each time of silence, also where the other side's is shorter than this one's.
constexpr int kBeatsPerSilence = 5;
constexpr absl::Duration kBeatMax = absl::Seconds(1);

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

NativeConnection::Limits ConnectionLimits(const Limits& limits) {
  NativeConnection::Limits out;
  out.control_bytes_max = static_cast<size_t>(limits.control_queue_bytes_max);
  out.frame_bytes_max = static_cast<size_t>(limits.relay_queue_bytes_max);
  out.frame_limit = "relay_queue_bytes_max";
  return out;
}

}  // namespace

PeerLink::PeerLink(EventLoop* loop, std::unique_ptr<PacketChannel> stream, absl::Duration silence_max,
                   const Limits& limits, Events* events)
    : loop_(loop),
      events_(events),
      silence_max_(silence_max),
      payload_bytes_max_(static_cast<uint64_t>(limits.segment_bytes_max)),
      connection_(NativeConnection::Start(loop, std::move(stream), this, ConnectionLimits(limits))),
      heard_(loop->Now()) {
  Beat();
}

PeerLink::~PeerLink() { Close(); }

void PeerLink::Close() {
  if (timer_ != 0) loop_->Cancel(timer_);
  timer_ = 0;
  connection_->Close();
  bulk_.clear();
  bulk_bytes_ = 0;
  deferred_.clear();
  incoming_.clear();
}

void PeerLink::Beat() {
  timer_ = 0;
  if (loop_->Now() - heard_ > silence_max_) {
    Close();
    events_->OnLinkLost(*this, absl::UnavailableError(absl::StrCat(
                                   "silent for ", absl::ToInt64Milliseconds(silence_max_), " ms")));
    return;
  }
  Send({ControlType::kBeat, 0, Value::Map{}});
  timer_ = loop_->RunAfter(std::min(silence_max_ / kBeatsPerSilence, kBeatMax), [this] { Beat(); });
}

void PeerLink::Send(const ControlMessage& message) { connection_->Send(message); }

void PeerLink::SendBehind(const ProcAddress& proc, ControlMessage message) {
  deferred_.emplace_back(proc, std::move(message));
  SendDeferred();
}

void PeerLink::SendDeferred() {
  std::erase_if(deferred_, [this](const auto& entry) {
    const auto first = bulk_.lower_bound(Pair{entry.first, ProcAddress{}});
    if (first != bulk_.end() && first->first.first == entry.first) return false;
    Send(entry.second);
    return true;
  });
}

size_t PeerLink::waiting_bytes() const { return connection_->frame_bytes() + bulk_bytes_; }

absl::Status PeerLink::SendFrame(RelayFrame& frame) {
  if (connection_->closed()) return absl::UnavailableError("relay frame: the way to its host is lost");
  const Pair pair{frame.header.sender.proc, frame.header.receiver.proc};
  const auto queue = bulk_.find(pair);
  if (frame.payload == nullptr && queue == bulk_.end())
    return connection_->SendFrame(std::move(frame.packet));
  bulk_bytes_ += frame.header.payload_length;
  bulk_[pair].push_back({std::move(frame), 0, 0});
  Pump();
  return absl::OkStatus();
}

void PeerLink::Pump() {
  while (!connection_->closed() && connection_->frame_bytes() < kWindowBytes && SendPiece()) continue;
}

bool PeerLink::SendPiece() {
  if (bulk_.empty()) return false;
  auto next = last_ ? bulk_.upper_bound(*last_) : bulk_.begin();
  if (next == bulk_.end()) next = bulk_.begin();
  last_ = next->first;
  Outgoing& first = next->second.front();
  const uint64_t length = first.frame.header.payload_length;
  if (first.frame.payload == nullptr) {
    static_cast<void>(connection_->SendFrame(std::move(first.frame.packet)));
    first.done = length;
  } else {
    if (first.number == 0) {
      first.number = next_number_++;
      Send(
          {ControlType::kFrameBegin, 0,
           Value::Map{{"number", Value(first.number)}, {"header", Value(Value::Bytes{first.frame.packet})}}});
    }
    std::string piece(kPieceMagic);
    AppendLe<uint32_t>(&piece, first.number);
    const size_t bytes = std::min<uint64_t>(kPieceBytes, length - first.done);
    piece.resize(kPieceHeadBytes + bytes);
    const ssize_t got = pread(first.frame.payload->get(), piece.data() + kPieceHeadBytes, bytes,
                              static_cast<off_t>(first.frame.offset + first.done));
    if (got != static_cast<ssize_t>(bytes)) {
      // Its end was checked, and sealed memory does not shrink. Silence ends the link.
      LogError("daemon", "payload unreadable").With("error", ErrnoStatus("pread", errno).ToString());
      connection_->Close();
      return false;
    }
    static_cast<void>(connection_->SendFrame(std::move(piece)));
    first.done += bytes;
    bulk_bytes_ -= bytes;
  }
  if (first.done < length) return true;
  if (first.frame.payload == nullptr) bulk_bytes_ -= length;
  absl::AnyInvocable<void()> sent = std::move(first.frame.sent);
  next->second.pop_front();
  const bool pair_done = next->second.empty();
  if (pair_done) bulk_.erase(next);
  if (sent) sent();
  if (pair_done) SendDeferred();
  return true;
}

void PeerLink::OnFramesSent(NativeConnection&) {
  Pump();
  events_->OnLinkRoom(*this);
}

absl::Status PeerLink::OnPacket(NativeConnection&, Packet packet) {
  heard_ = loop_->Now();
  if (IsFramePacket(packet.bytes)) {
    RelayFrame frame;
    MONARCH_ASSIGN_OR_RETURN(frame.header, DecodeFrameHeader(AsBytes(packet.bytes), payload_bytes_max_));
    if ((frame.header.flags & kFlagInSegment) != 0 ||
        frame.header.payload_length != packet.bytes.size() - kFrameHeaderBytes) {
      return absl::InvalidArgumentError("link frame: its payload is not what its header says");
    }
    frame.packet = std::move(packet.bytes);
    return events_->OnLinkFrame(*this, std::move(frame));
  }
  if (packet.bytes.substr(0, kPieceMagic.size()) == kPieceMagic) return OnPiece(packet.bytes);
  MONARCH_ASSIGN_OR_RETURN(const ControlMessage message, DecodeControl(packet.bytes));
  if (message.type == ControlType::kBeat) return absl::OkStatus();
  if (message.type == ControlType::kFrameBegin) return OnBegin(message);
  return events_->OnLinkControl(*this, message);
}

absl::Status PeerLink::OnBegin(const ControlMessage& message) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t number, message.body["number"].AsInt());
  Incoming incoming;
  MONARCH_ASSIGN_OR_RETURN(incoming.head, message.body["header"].AsBytes());
  MONARCH_ASSIGN_OR_RETURN(incoming.header, DecodeFrameHeader(AsBytes(incoming.head), payload_bytes_max_));
  if (incoming.head.size() != kFrameHeaderBytes || (incoming.header.flags & kFlagInSegment) != 0 ||
      incoming.header.payload_length == 0 || number <= 0 || number > UINT32_MAX) {
    return absl::InvalidArgumentError("frame begin: not a header of a payload in pieces");
  }
  if (incoming_.size() >= kIncomingMax)
    return absl::ResourceExhaustedError("frame begin: too many under way");
  // Sparse until its pieces come.
  MONARCH_ASSIGN_OR_RETURN(incoming.payload,
                           CreateSealedMemfd("monarch-relay", incoming.header.payload_length));
  if (!incoming_.emplace(static_cast<uint32_t>(number), std::move(incoming)).second)
    return absl::InvalidArgumentError(absl::StrCat("frame begin: number ", number, " is under way"));
  return absl::OkStatus();
}

absl::Status PeerLink::OnPiece(const std::string& packet) {
  if (packet.size() <= kPieceHeadBytes) return absl::InvalidArgumentError("frame piece: empty");
  const auto found = incoming_.find(LoadLe<uint32_t>(packet.data() + kPieceMagic.size()));
  if (found == incoming_.end()) return absl::InvalidArgumentError("frame piece: of no frame under way");
  Incoming& incoming = found->second;
  const size_t bytes = packet.size() - kPieceHeadBytes;
  if (bytes > incoming.header.payload_length - incoming.done)
    return absl::InvalidArgumentError("frame piece: beyond the payload's end");
  if (pwrite(incoming.payload.get(), packet.data() + kPieceHeadBytes, bytes,
             static_cast<off_t>(incoming.done)) != static_cast<ssize_t>(bytes)) {
    return ErrnoStatus("keep a payload", errno);
  }
  incoming.done += bytes;
  if (incoming.done < incoming.header.payload_length) return absl::OkStatus();
  RelayFrame frame;
  frame.header = incoming.header;
  frame.packet = std::move(incoming.head);
  frame.payload = std::make_shared<ScopedFd>(std::move(incoming.payload));
  incoming_.erase(found);
  return events_->OnLinkFrame(*this, std::move(frame));
}

void PeerLink::OnClosed(NativeConnection&, const absl::Status& why) {
  Close();
  events_->OnLinkLost(*this, why);
}

}  // namespace monarch
