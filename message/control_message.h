#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "message/value.h"

namespace monarch {

// Messages of the native control sockets (process to daemon, daemon to launcher, launcher to worker). The
// body is a map; WIRE.md lists the keys and the fds that travel along. Wire values; never renumbered.
enum class ControlType : uint16_t {
  kUnspecified = 0,
  // process <-> daemon
  kHello = 1,  // first message; fds: doorbell, bell, segment[, stdout, stderr[, output stream] of a client]
  kWelcome = 2,
  kRefused = 3,      // answer to any request that failed: {code, message}; after kHello the daemon closes
  kOpenControl = 4,  // fd: one end of a socket pair that the daemon serves gRPC on
  kOk = 5,
  kConnect = 6,      // {peer}: introduce me to this proc
  kIntroduce = 7,    // to both; fds: doorbell, bell, segment of the peer[, ring memfd]
  kUnreachable = 8,  // {peer, event}: answer to kConnect for a proc that is gone
  kActorUp = 9,
  kActorDown = 10,
  kProcDead = 11,    // daemon -> process: {peer, event}; at once, cause as far as known
  kProcDetail = 12,  // daemon -> process: the same event with stderr and the confirmed cause
  kStop = 13,        // daemon or launcher -> worker: {reason, grace_ms}: stop the actors, then exit with 0
  kReady = 14,       // worker -> daemon: can create actors
  kGoodbye = 15,     // client -> daemon: end my session now; answered by kOk when nothing of it is left.
                     // daemon -> client: {reason}: others ended it, and nothing is left
  kUndelivered =
      16,  // daemon -> process: {receiver, code, message, ...}: a relayed frame could not be delivered
  kRelayPause = 17,   // daemon -> process: {peer}: much waits for that proc, hold back what is relayed to it
  kRelayResume = 18,  // daemon -> process: {peer}: go on
  kRelayed = 19,      // daemon -> process: {peer, offset}: that block was read for that receiver
  kAskInterpreter = 20,  // daemon -> worker: see whether its interpreter can be had
  kHandlerEnded = 24,  // process -> daemon: {}: a handler that it watches (Doorbell::WatchActivity) has ended
  kHung = 25,          // daemon -> process, host -> home: a HangNotice; nothing has failed
  // daemon <-> launcher
  kSetup = 32,   // fds: client's pidfd, stdout, stderr[, output stream]
  kLaunch = 33,  // fd: the worker's end of its native control socket
  kLaunched = 34,
  kLaunchFailed = 35,
  kDying = 36,   // life-line fired; cause as read from /proc, unconfirmed
  kExited = 37,  // reaped
  kSignal = 38,
  kEndSession = 39,   // stop everything: workers are asked, TERM to the rest, KILL after {kill_after_ms}
  kSessionGone = 40,  // nothing of the session is left on this host; the launcher exits
  kDoorbell = 41,     // fd: doorbell of a process of the session
  kLink = 42,         // two processes have a ring
  kStopping = 43,     // its end is not told by the launcher
  kKeep = 44,         // {key, value}, and fds: kept for the next daemon, in place of what had that key
  kForget = 45,       // {key[, proc]}: what is kept by that key, and the news of that process
  kResume = 46,       // {token}: first message of the next daemon; kKeep messages, news and kOk follow
  // launcher <-> worker
  kBoot = 48,      // launcher -> worker, first: who you are, your start token, the spawner's boot bytes
  kLifeline = 49,  // worker -> launcher; fd: doorbell
  // daemon <-> daemon
  kPeerHello = 64,    // first packet of each connection: what it is for
  kPeerWelcome = 65,  // answer: who is there
  kFrameBegin = 66,   // {number, header}: pieces of that frame's payload follow
  kToProc = 67,       // {to, type, body}: a message for that process
  kProcUp = 68,       // worker's daemon -> home: a process of the session exists
  kBeat = 69,
};

struct ControlMessage {
  ControlType type = ControlType::kUnspecified;
  uint32_t request = 0;  // chosen by the asker, repeated in the answer; 0: no answer expected
  Value body;
};

// Packet: 16 byte head (magic "MNC1", type, request, body length) and the encoded map. A nil body becomes an
// empty map; no other type is allowed (checked). InvalidArgument for a body that EncodeValue refuses, or of 4
// GiB.
absl::StatusOr<std::string> EncodeControl(const ControlMessage& message);
// Input is hostile: InvalidArgument for a bad head, an unknown type, or a body that is not a map.
absl::StatusOr<ControlMessage> DecodeControl(std::string_view packet);
// Whether the packet is a frame (starts with the frame magic) rather than a control message.
bool IsFramePacket(std::string_view packet);

// Ids (sessions, tokens: bytes), addresses and events inside bodies.
Value ToValue(const Id128& id);
absl::StatusOr<Id128> Id128FromValue(const Value& value);
Value ToValue(const ProcAddress& address);
Value ToValue(const ActorAddress& address);
// Text that is not UTF-8 (stderr, a traceback) is repaired, text beyond 16 MiB and causes nested deeper than
// 16 are cut off: the receiver would refuse the whole event.
Value ToValue(const FailureEvent& event);
absl::StatusOr<ProcAddress> ProcAddressFromValue(const Value& value);
absl::StatusOr<ActorAddress> ActorAddressFromValue(const Value& value);
// Causes nested deeper than 16 are InvalidArgument.
absl::StatusOr<FailureEvent> FailureEventFromValue(const Value& value);
std::string EncodeFailureEvent(const FailureEvent& event);
absl::StatusOr<FailureEvent> DecodeFailureEvent(std::string_view bytes);

}  // namespace monarch
