#include "message/frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "message/bytes.h"

namespace monarch {
namespace {

constexpr uint8_t kMagic[4] = {'M', 'N', 'F', '1'};
constexpr uint8_t kVersion = 1;
constexpr uint64_t kOffsetEndMax = uint64_t{1} << 63;

constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kHeaderLengthAt = 5;
constexpr size_t kKindAt = 6;
constexpr size_t kPayloadKindAt = 7;
constexpr size_t kFlagsAt = 8;
constexpr size_t kReservedAt = 10;
constexpr size_t kReservedBytes = 6;
constexpr size_t kSessionAt = 16;
constexpr size_t kSenderAt = 32;
constexpr size_t kReceiverAt = 72;
constexpr size_t kSequenceAt = 112;
constexpr size_t kCallIdAt = 120;
constexpr size_t kPortIdAt = 128;
constexpr size_t kReplyWordAt = 136;
constexpr size_t kRankAt = 140;
constexpr size_t kDeadlineAt = 144;
constexpr size_t kChainIdAt = 152;
constexpr size_t kTraceIdAt = 160;
constexpr size_t kPayloadLengthAt = 168;
constexpr size_t kSegmentOffsetAt = 176;
constexpr size_t kReserved2At = 184;
constexpr size_t kReserved2Bytes = 32;
constexpr size_t kChecksumAt = 216;
static_assert(kChecksumAt + 8 == kFrameHeaderBytes && kFrameHeaderBytes / 8 == 28);

// Within an address.
constexpr size_t kProcAt = 16;
constexpr size_t kIncarnationAt = 24;
constexpr size_t kAddressReservedAt = 28;
constexpr size_t kAddressReservedBytes = 4;
constexpr size_t kActorAt = 32;

// By words: byte by byte it would be a tenth of a call's cost.
uint64_t Checksum(const uint8_t* header) {
  static_assert(kChecksumAt % sizeof(uint64_t) == 0);
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < kChecksumAt; i += sizeof(uint64_t)) {
    hash = (hash ^ LoadLe<uint64_t>(header + i)) * 0x100000001b3;
  }
  return hash;
}

void StoreAddress(uint8_t* out, const ActorAddress& address) {
  StoreId(out, address.proc.host);
  StoreLe<uint64_t>(out + kProcAt, address.proc.proc);
  StoreLe<uint32_t>(out + kIncarnationAt, address.proc.incarnation);
  StoreLe<uint64_t>(out + kActorAt, address.actor);
}

ActorAddress LoadAddress(const uint8_t* from) {
  ActorAddress address;
  address.proc.host = HostId(LoadId(from));
  address.proc.proc = LoadLe<uint64_t>(from + kProcAt);
  address.proc.incarnation = LoadLe<uint32_t>(from + kIncarnationAt);
  address.actor = LoadLe<uint64_t>(from + kActorAt);
  return address;
}

bool IsKnownKind(uint8_t kind) {
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::kCreate:
    case FrameKind::kCall:
    case FrameKind::kReply:
    case FrameKind::kException:
    case FrameKind::kFailure:
    case FrameKind::kPortMessage:
    case FrameKind::kStopActor:
    case FrameKind::kActorFailed:
    case FrameKind::kPause:
    case FrameKind::kResume:
    case FrameKind::kRelease:
    case FrameKind::kCancel:
    case FrameKind::kProbe:
    case FrameKind::kActorEnded:
    case FrameKind::kOrphaned:
      return true;
    case FrameKind::kUnspecified:
      break;
  }
  return false;
}

bool IsZero(const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

absl::Status Bad(absl::string_view what, uint64_t found) {
  return absl::InvalidArgumentError(absl::StrCat("frame header: ", what, ": ", found));
}

// What stands before the addresses, and the reserved bytes. The checksum comes last: a wrong version may have
// another.
absl::Status CheckFixedFields(const uint8_t* h) {
  if (std::memcmp(h + kMagicAt, kMagic, sizeof(kMagic)) != 0) {
    return Bad("wrong magic", LoadLe<uint32_t>(h + kMagicAt));
  }
  if (h[kVersionAt] != kVersion) return Bad("unknown version", h[kVersionAt]);
  if (h[kHeaderLengthAt] != kFrameHeaderBytes / 8) return Bad("wrong header length / 8", h[kHeaderLengthAt]);
  if (LoadLe<uint64_t>(h + kChecksumAt) != Checksum(h)) {
    return Bad("bad checksum", LoadLe<uint64_t>(h + kChecksumAt));
  }
  if (!IsKnownKind(h[kKindAt])) return Bad("unknown kind", h[kKindAt]);
  if (h[kPayloadKindAt] > static_cast<uint8_t>(PayloadKind::kPickle)) {
    return Bad("unknown payload kind", h[kPayloadKindAt]);
  }
  const auto flags = LoadLe<uint16_t>(h + kFlagsAt);
  if ((flags & ~kKnownFlags) != 0) return Bad("unknown flags", flags);
  if (!IsZero(h + kReservedAt, kReservedBytes) || !IsZero(h + kReserved2At, kReserved2Bytes) ||
      !IsZero(h + kSenderAt + kAddressReservedAt, kAddressReservedBytes) ||
      !IsZero(h + kReceiverAt + kAddressReservedAt, kAddressReservedBytes)) {
    return absl::InvalidArgumentError("frame header: reserved bytes are not 0");
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, absl::Span<uint8_t> out) {
  MONARCH_CHECK(out.size() >= kFrameHeaderBytes);
  uint8_t* h = out.data();
  std::memset(h, 0, kFrameHeaderBytes);
  std::memcpy(h + kMagicAt, kMagic, sizeof(kMagic));
  h[kVersionAt] = kVersion;
  h[kHeaderLengthAt] = kFrameHeaderBytes / 8;
  h[kKindAt] = static_cast<uint8_t>(header.kind);
  h[kPayloadKindAt] = static_cast<uint8_t>(header.payload_kind);
  StoreLe<uint16_t>(h + kFlagsAt, header.flags);
  StoreId(h + kSessionAt, header.session);
  StoreAddress(h + kSenderAt, header.sender);
  StoreAddress(h + kReceiverAt, header.receiver);
  StoreLe<uint64_t>(h + kSequenceAt, header.sequence);
  StoreLe<uint64_t>(h + kCallIdAt, header.call_id);
  StoreLe<uint64_t>(h + kPortIdAt, header.port_id);
  StoreLe<uint32_t>(h + kReplyWordAt, header.reply_word);
  StoreLe<uint32_t>(h + kRankAt, header.rank);
  StoreLe<int64_t>(h + kDeadlineAt, header.deadline_ns);
  StoreLe<uint64_t>(h + kChainIdAt, header.chain_id);
  StoreLe<uint64_t>(h + kTraceIdAt, header.trace_id);
  StoreLe<uint64_t>(h + kPayloadLengthAt, header.payload_length);
  StoreLe<uint64_t>(h + kSegmentOffsetAt, header.segment_offset);
  StoreLe<uint64_t>(h + kChecksumAt, Checksum(h));
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> bytes, uint64_t payload_bytes_max) {
  if (bytes.size() < kFrameHeaderBytes) return Bad("truncated, bytes", bytes.size());
  const uint8_t* h = bytes.data();
  if (absl::Status status = CheckFixedFields(h); !status.ok()) return status;

  FrameHeader header;
  header.kind = static_cast<FrameKind>(h[kKindAt]);
  header.payload_kind = static_cast<PayloadKind>(h[kPayloadKindAt]);
  header.flags = LoadLe<uint16_t>(h + kFlagsAt);
  header.session = SessionId(LoadId(h + kSessionAt));
  header.sender = LoadAddress(h + kSenderAt);
  header.receiver = LoadAddress(h + kReceiverAt);
  header.sequence = LoadLe<uint64_t>(h + kSequenceAt);
  header.call_id = LoadLe<uint64_t>(h + kCallIdAt);
  header.port_id = LoadLe<uint64_t>(h + kPortIdAt);
  header.reply_word = LoadLe<uint32_t>(h + kReplyWordAt);
  header.rank = LoadLe<uint32_t>(h + kRankAt);
  header.deadline_ns = LoadLe<int64_t>(h + kDeadlineAt);
  header.chain_id = LoadLe<uint64_t>(h + kChainIdAt);
  header.trace_id = LoadLe<uint64_t>(h + kTraceIdAt);
  header.payload_length = LoadLe<uint64_t>(h + kPayloadLengthAt);
  header.segment_offset = LoadLe<uint64_t>(h + kSegmentOffsetAt);

  if (header.payload_length > payload_bytes_max)
    return Bad("payload length too large", header.payload_length);
  if (header.segment_offset > kOffsetEndMax ||
      header.payload_length > kOffsetEndMax - header.segment_offset) {
    return Bad("segment offset too large", header.segment_offset);
  }
  return header;
}

}  // namespace monarch
