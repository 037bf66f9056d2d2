#include "message/frame.h"

#include <array>
#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/escaping.h"
#include "message/bytes.h"

namespace monarch {
namespace {

constexpr uint64_t kAnyLength = std::numeric_limits<uint64_t>::max();
using HeaderBytes = std::array<uint8_t, kFrameHeaderBytes>;

FrameHeader Sample() {
  FrameHeader header;
  header.kind = FrameKind::kCall;
  header.payload_kind = PayloadKind::kPickle;
  header.flags = kFlagUrgent | kFlagInSegment;
  header.session = SessionId({0xa0a1a2a3a4a5a6a7, 0xa8a9aaabacadaeaf});
  header.sender = {{HostId({0x1011121314151617, 0x18191a1b1c1d1e1f}), 7, 2}, 0x100000005};
  header.receiver = {{HostId({0x4041424344454647, 0x48494a4b4c4d4e4f}), 9, 1}, kRootActor};
  header.sequence = 11;
  header.call_id = 12;
  header.port_id = 13;
  header.reply_word = 14;
  header.rank = 15;
  header.deadline_ns = 16;
  header.chain_id = 17;
  header.trace_id = 18;
  header.payload_length = 0x2000;
  header.segment_offset = 0x40;
  return header;
}

const char* const kSampleHex =
    "4d4e4631011c03030300000000000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf101112131415161718191a1b1c1d1e1f"
    "070000000000000002000000000000000500000001000000404142434445464748494a4b4c4d4e4f0900000000000000"
    "010000000000000001000000000000000b000000000000000c000000000000000d000000000000000e0000000f000000"
    "100000000000000011000000000000001200000000000000002000000000000040000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000007375b4a74ff55e84";

HeaderBytes Encode(const FrameHeader& header) {
  HeaderBytes bytes;
  bytes.fill(0xEE);
  EncodeFrameHeader(header, absl::MakeSpan(bytes));
  return bytes;
}

// What a hostile sender does after changing a field.
void Reseal(HeaderBytes* bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < 216; i += 8) hash = (hash ^ LoadLe<uint64_t>(bytes->data() + i)) * 0x100000001b3;
  StoreLe<uint64_t>(bytes->data() + 216, hash);
}

void CheckRefused(absl::Span<const uint8_t> bytes, const std::string& named,
                  uint64_t length_max = kAnyLength) {
  const auto header = DecodeFrameHeader(bytes, length_max);
  REQUIRE_FALSE(header.ok());
  CHECK(header.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(header.status().message()), Catch::Contains(named));
}

TEST_CASE("FrameHeaderBytesAreGolden") {
  const HeaderBytes bytes = Encode(Sample());
  CHECK(absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) == kSampleHex);
}

TEST_CASE("FrameHeaderRoundTripsEveryField") {
  const auto header = DecodeFrameHeader(Encode(Sample()), kAnyLength);
  REQUIRE(header.ok());
  const FrameHeader want = Sample();
  CHECK(header->kind == want.kind);
  CHECK(header->payload_kind == want.payload_kind);
  CHECK(header->flags == want.flags);
  CHECK(header->session == want.session);
  CHECK(header->sender == want.sender);
  CHECK(header->receiver == want.receiver);
  CHECK(header->sequence == want.sequence);
  CHECK(header->call_id == want.call_id);
  CHECK(header->port_id == want.port_id);
  CHECK(header->reply_word == want.reply_word);
  CHECK(header->rank == want.rank);
  CHECK(header->deadline_ns == want.deadline_ns);
  CHECK(header->chain_id == want.chain_id);
  CHECK(header->trace_id == want.trace_id);
  CHECK(header->payload_length == want.payload_length);
  CHECK(header->segment_offset == want.segment_offset);
}

TEST_CASE("FrameHeaderRefusesEveryTruncation") {
  const HeaderBytes bytes = Encode(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) CheckRefused({bytes.data(), size}, "truncated");
}

TEST_CASE("FrameHeaderRefusesEveryChangedByte") {
  for (size_t i = 0; i < kFrameHeaderBytes; ++i) {
    HeaderBytes bytes = Encode(Sample());
    bytes[i] ^= 0x10;
    CHECK_FALSE(DecodeFrameHeader(bytes, kAnyLength).ok());
  }
}

TEST_CASE("FrameHeaderRefusalNamesTheField") {
  struct {
    size_t at;
    uint8_t value;
    const char* named;
  } const cases[] = {
      {0, 'X', "magic"},      {4, 0, "version"},   {4, 2, "version"},    {5, 27, "header length"},
      {6, 0, "kind"},         {6, 2, "kind"},      {6, 9, "kind"},       {6, 18, "kind"},
      {7, 4, "payload kind"}, {8, 64, "flags"},    {9, 1, "flags"},      {10, 1, "reserved"},
      {15, 1, "reserved"},    {60, 1, "reserved"}, {100, 1, "reserved"}, {184, 1, "reserved"},
      {215, 1, "reserved"},
  };
  for (const auto& c : cases) {
    HeaderBytes bytes = Encode(Sample());
    bytes[c.at] = c.value;
    Reseal(&bytes);
    CheckRefused(bytes, c.named);
  }
}

TEST_CASE("FrameHeaderRefusesBadChecksum") {
  HeaderBytes bytes = Encode(Sample());
  bytes[223] ^= 1;
  CheckRefused(bytes, "checksum");
}

TEST_CASE("FrameHeaderRefusesAbsurdLengths") {
  CHECK(DecodeFrameHeader(Encode(Sample()), 0x2000).ok());
  CheckRefused(Encode(Sample()), "payload length", 0x1FFF);
  FrameHeader header = Sample();
  header.segment_offset = (uint64_t{1} << 63) - 0x2000;
  CHECK(DecodeFrameHeader(Encode(header), kAnyLength).ok());
  header.segment_offset += 1;
  CheckRefused(Encode(header), "segment offset");
  header.segment_offset = std::numeric_limits<uint64_t>::max() - 0x1000;  // the sum wraps around
  CheckRefused(Encode(header), "segment offset");
  header.segment_offset = 0;
  header.payload_length = std::numeric_limits<uint64_t>::max();
  CheckRefused(Encode(header), "segment offset");
}

TEST_CASE("FrameHeaderKnowsEveryKind") {
  int known = 0;
  for (int kind = 0; kind < 256; ++kind) {
    FrameHeader header = Sample();
    header.kind = static_cast<FrameKind>(kind);
    known += DecodeFrameHeader(Encode(header), kAnyLength).ok() ? 1 : 0;
  }
  CHECK(known == 15);
}

}  // namespace
}  // namespace monarch
