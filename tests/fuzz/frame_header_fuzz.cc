#include <cstring>
#include <limits>

#include "base/check.h"
#include "message/bytes.h"
#include "message/frame.h"

namespace monarch {
namespace {

void Try(absl::Span<const uint8_t> bytes, uint64_t payload_bytes_max) {
  const auto header = DecodeFrameHeader(bytes, payload_bytes_max);
  if (!header.ok()) {
    MONARCH_CHECK(header.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  MONARCH_CHECK(header->payload_length <= payload_bytes_max);
  MONARCH_CHECK(header->payload_length + header->segment_offset <= uint64_t{1} << 63);
  uint8_t again[kFrameHeaderBytes];
  EncodeFrameHeader(*header, absl::MakeSpan(again));
  MONARCH_CHECK(std::memcmp(again, bytes.data(), kFrameHeaderBytes) == 0);
}

}  // namespace
}  // namespace monarch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  constexpr uint64_t kAnyLength = std::numeric_limits<uint64_t>::max();
  Try({data, size}, kAnyLength);
  Try({data, size}, 4096);
  if (size < kFrameHeaderBytes) return 0;
  // Mutations of the other bytes would all end at the checksum.
  uint8_t sealed[kFrameHeaderBytes];
  std::memcpy(sealed, data, sizeof(sealed));
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < 216; i += 8) hash = (hash ^ LoadLe<uint64_t>(sealed + i)) * 0x100000001b3;
  StoreLe<uint64_t>(sealed + 216, hash);
  Try(sealed, kAnyLength);
  return 0;
}
