#pragma once

#include "message/frame.h"

namespace monarch {

// What the kind of a frame says of its way. Pure; thread-safe.

// Held back by flow control; all else has reserved room.
inline bool IsHeldBack(FrameKind kind) { return kind == FrameKind::kCall || kind == FrameKind::kPortMessage; }

// Addressed to a port (or the answers of a call) of its receiver, not to its mailbox.
inline bool IsToPort(FrameKind kind) {
  return kind == FrameKind::kReply || kind == FrameKind::kException || kind == FrameKind::kFailure ||
         kind == FrameKind::kPortMessage;
}

}  // namespace monarch
