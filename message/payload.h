#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace monarch {

// A frame's payload is a small `meta` (value codec: method name, shape, ...; read by C++) and parts (for
// pickle: the stream, then its out-of-band buffers). One contiguous block; layout in WIRE.md. A part of 4 KiB
// and more starts at a multiple of 64 from the payload's start, a smaller one at a multiple of 8.
inline constexpr size_t kPayloadPartsMax = 65536;
inline constexpr size_t kPayloadMetaBytesMax = 0xFFFFFFFF;

// At most kPayloadPartsMax parts and a meta of at most kPayloadMetaBytesMax (checked: the caller's bug
// otherwise). Threading: confined to its caller; the spans must outlive it.
class PayloadWriter {
 public:
  PayloadWriter(std::string_view meta, absl::Span<const absl::Span<const uint8_t>> parts);
  size_t size() const { return size_; }
  // Exactly size() bytes; the padding is zeroed.
  void WriteTo(uint8_t* out) const;

 private:
  std::string_view meta_;
  absl::Span<const absl::Span<const uint8_t>> parts_;
  size_t size_;
};

// What a payload holds; spans into the parsed bytes.
struct PayloadView {
  std::string_view meta;
  std::vector<absl::Span<uint8_t>> parts;

  // Input is hostile: InvalidArgument unless meta and parts lie within `bytes`, in order and without overlap,
  // and nothing follows them; at most kPayloadPartsMax parts. No bytes at all: empty meta, no parts.
  static absl::StatusOr<PayloadView> Parse(absl::Span<uint8_t> bytes);
};

}  // namespace monarch
