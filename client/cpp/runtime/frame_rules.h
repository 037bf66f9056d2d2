#pragma once

#include "base/clock.h"
#include "message/frame.h"

namespace monarch {

// What the header of a frame says of its way. Thread-safe.

// Held back by flow control; all else has reserved room.
inline bool IsHeldBack(FrameKind kind) { return kind == FrameKind::kCall || kind == FrameKind::kPortMessage; }

// Addressed to a port (or the answers of a call) of its receiver, not to its mailbox.
inline bool IsToPort(FrameKind kind) {
  return kind == FrameKind::kReply || kind == FrameKind::kException || kind == FrameKind::kFailure ||
         kind == FrameKind::kPortMessage;
}

// A deadline on CLOCK_MONOTONIC; 0: none.
inline bool HasPassed(int64_t deadline_ns) {
  return deadline_ns != 0 && absl::ToInt64Nanoseconds(SystemClock().Now()) >= deadline_ns;
}

}  // namespace monarch
