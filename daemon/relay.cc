#include "daemon/relay.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

// A payload in a segment may be as long as any segment; what it says is checked by the receiver, who maps it.
constexpr uint64_t kSegmentBytesMax = uint64_t{1} << 46;

}  // namespace

absl::StatusOr<FrameHeader> CheckRelayedFrame(const std::string& packet, const SessionId& session,
                                              const ProcAddress& sender) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(packet.data());
  MONARCH_ASSIGN_OR_RETURN(FrameHeader header,
                           DecodeFrameHeader(absl::MakeConstSpan(bytes, packet.size()), kSegmentBytesMax));
  const bool in_segment = (header.flags & kFlagInSegment) != 0;
  const uint64_t inline_bytes = in_segment ? 0 : header.payload_length;
  if (inline_bytes != packet.size() - kFrameHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("relay frame: ", packet.size() - kFrameHeaderBytes,
                                                   " bytes of payload, its header says ", inline_bytes));
  }
  if (header.session != session) return absl::PermissionDeniedError("relay frame: of another session");
  if (header.sender.proc != sender)
    return absl::PermissionDeniedError("relay frame: in the name of another process");
  return header;
}

ControlMessage UndeliveredMessage(const std::string& packet, const absl::Status& why) {
  return ControlMessage{ControlType::kUndelivered, 0,
                        Value::Map{{"header", Value(Value::Bytes{packet.substr(0, kFrameHeaderBytes)})},
                                   {"code", Value(why.raw_code())},
                                   {"message", Value(std::string(why.message()))}}};
}

bool RelayPauses::OnFrame(const ProcAddress& receiver, const ProcAddress& sender, size_t waiting_bytes) {
  return waiting_bytes > pause_bytes_ && paused_[receiver].insert(sender).second;
}

std::vector<ProcAddress> RelayPauses::OnSent(const ProcAddress& receiver, size_t waiting_bytes) {
  // Well below the mark, so that a receiver at its limit does not cost two notices per frame.
  if (waiting_bytes > pause_bytes_ / 2) return {};
  const auto found = paused_.find(receiver);
  if (found == paused_.end()) return {};
  std::vector<ProcAddress> senders(found->second.begin(), found->second.end());
  paused_.erase(found);
  return senders;
}

std::vector<std::pair<ProcAddress, ProcAddress>> RelayPauses::OnSentToAll(size_t waiting_bytes) {
  std::vector<std::pair<ProcAddress, ProcAddress>> out;
  if (waiting_bytes > pause_bytes_ / 2) return out;
  for (const auto& [receiver, senders] : paused_) {
    for (const ProcAddress& sender : senders) out.emplace_back(receiver, sender);
  }
  paused_.clear();
  return out;
}

void RelayPauses::Remove(const ProcAddress& proc) {
  paused_.erase(proc);
  for (auto& [receiver, senders] : paused_) senders.erase(proc);
}

}  // namespace monarch
