#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "message/frame.h"

namespace monarch {

// What ends a wait for room before send_wait_ms does.
struct Patience {
  bool ends_on_signal = false;
  absl::Duration sleep_max = absl::InfiniteDuration();  // with ends_on_signal: after that, too
  absl::Duration waited = absl::ZeroDuration();         // before
  int64_t deadline_ns = 0;                              // CLOCK_MONOTONIC; 0: none
};

// A payload on its way out: inline bytes, or a block of the segment with one holder for each remote target.
// Threading: plain data.
struct PreparedPayload {
  PayloadKind kind = PayloadKind::kNone;
  uint64_t length = 0;
  std::string bytes;  // empty with a block
  std::optional<uint64_t> block;
  uint16_t flags = 0;
  absl::Span<const uint8_t> inline_bytes() const;
};

}  // namespace monarch
