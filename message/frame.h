#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace monarch {

// What a frame asks of its receiver. Wire values; never renumbered. See WIRE.md.
enum class FrameKind : uint8_t {
  kUnspecified = 0,
  // To an agent (actor 0):
  kCreate = 1,  // make an actor; the receiver address in the payload's meta
  // To an actor:
  kCall = 3,          // run an endpoint; answers go to (sender, port_id) if port_id != 0
  kStopActor = 8,     // end the actor; answered when it is gone
  kActorFailed = 10,  // to an owner: a FailureEvent about something it spawned
  kCancel = 14,       // the sender's process no longer waits for the answer to its call `call_id`
  // To a port of an actor:
  kReply = 4,        // a value (also kCreate's and kStopActor's empty answer)
  kException = 5,    // what an endpoint raised
  kFailure = 6,      // a FailureEvent: the callee is dead, stopped or unknown
  kPortMessage = 7,  // Port.send
  // Between two procs (receiver actor 0):
  kPause = 11,  // stop sending to actor `call_id`: its mailbox is full
  kResume = 12,
  kRelease = 13,     // segment blocks of the receiver that the sender is done with; payload: u64 offsets
  kProbe = 15,       // about actors that wait for each other
  kActorEnded = 16,  // actor `call_id` of the sending proc is gone: end the numbers to it
  kOrphaned = 17,    // actor `call_id` of the sending proc lost its owner and answers no more; a FailureEvent
};

enum class PayloadKind : uint8_t {
  kNone = 0,
  kRaw = 1,     // bytes
  kValue = 2,   // message/value.h
  kPickle = 3,  // Python to Python only; never read by C++
};

enum FrameFlags : uint16_t {
  kFlagUrgent = 1,     // ring the process bell even if the target's word says RUN
  kFlagInSegment = 2,  // the payload is at segment_offset of the sender proc's segment, not behind the header
  kFlagShared = 4,     // the block has several receivers: read only, copy out
  kFlagReply = 8,      // has reserved room: never held back by flow control
  kFlagFirst = 16,     // the pair's numbers begin with this one
  kFlagLast = 32,      // the pair's numbers end with this one: both sides forget them
};
inline constexpr uint16_t kKnownFlags = 63;

// The header of every frame, on every path; 224 bytes on the wire, layout in WIRE.md.
struct FrameHeader {
  FrameKind kind = FrameKind::kUnspecified;
  PayloadKind payload_kind = PayloadKind::kNone;
  uint16_t flags = 0;
  SessionId session;
  ActorAddress sender;
  ActorAddress receiver;
  uint64_t sequence = 0;    // of the pair (sender actor, receiver actor): one more with each frame
  uint64_t call_id = 0;     // of the call this belongs to; unique in the proc that made the call
  uint64_t port_id = 0;     // kCall, kCreate, kStopActor: where answers go; else the addressed port
  uint32_t reply_word = 0;  // wait word of the sender's proc that an answer rings; answers: the word to ring
  uint32_t rank = 0;        // calls: rank of the receiver in the mesh called; answers: that rank again
  int64_t deadline_ns = 0;  // calls within a host: CLOCK_MONOTONIC until which the answer is awaited; 0: none
  uint64_t chain_id = 0;    // of the outermost call that led to this one
  uint64_t trace_id = 0;
  uint64_t payload_length = 0;
  uint64_t segment_offset = 0;  // with kFlagInSegment
};

inline constexpr size_t kFrameHeaderBytes = 224;

// Writes kFrameHeaderBytes bytes, checksum included.
void EncodeFrameHeader(const FrameHeader& header, absl::Span<uint8_t> out);

// Input is hostile. InvalidArgument naming the field for: fewer bytes than a header, wrong magic, version or
// header length, unknown kind, payload kind or flag, non-zero reserved bytes, bad checksum, a payload length
// above `payload_bytes_max`, offset + length beyond 2^63.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> bytes, uint64_t payload_bytes_max);

}  // namespace monarch
