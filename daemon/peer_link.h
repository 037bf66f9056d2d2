#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/limits.h"
#include "daemon/native_connection.h"
#include "message/control_message.h"
#include "message/frame.h"

namespace monarch {

// A frame on its way through daemons: header and inline payload in one packet, or the header alone and the
// payload in a memfd, or at an offset of one.
struct RelayFrame {
  FrameHeader header;  // never with kFlagInSegment: a segment is its host's
  std::string packet;
  std::shared_ptr<ScopedFd> payload;  // null: inline
  uint64_t offset = 0;
  absl::AnyInvocable<void()> sent;  // the payload has been read and may be given back; only with `payload`
};

// One session's connection between two daemons: control messages, frames, and payloads of any size in pieces,
// between which other frames pass. What one process sent to another keeps its order; a message about a
// process's death is sent behind its frames. Threading: confined to the control loop.
class PeerLink : private NativeConnection::Handler {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // Not OK closes the link; OnLinkLost follows.
    virtual absl::Status OnLinkControl(PeerLink& link, const ControlMessage& message) = 0;
    virtual absl::Status OnLinkFrame(PeerLink& link, RelayFrame frame) = 0;
    // Once; not after Close().
    virtual void OnLinkLost(PeerLink& link, const absl::Status& why) = 0;
    // Less waits to be sent than before.
    virtual void OnLinkRoom(PeerLink& link) = 0;
  };

  // `stream`: connected; both hellos are over. `silence_max`: without a word for so long the link is lost.
  // `events` outlives the link, or closes it first.
  PeerLink(EventLoop* loop, std::unique_ptr<PacketChannel> stream, absl::Duration silence_max,
           const Limits& limits, Events* events);
  ~PeerLink() override;

  void Send(const ControlMessage& message);
  // Behind all frames of `proc` that wait here.
  void SendBehind(const ProcAddress& proc, ControlMessage message);
  // ResourceExhausted, Unavailable: not sent, `frame` is as before.
  absl::Status SendFrame(RelayFrame& frame);
  size_t waiting_bytes() const;
  void Close();

 private:
  using Pair = std::pair<ProcAddress, ProcAddress>;  // sender, receiver
  struct Outgoing {
    RelayFrame frame;
    uint32_t number = 0;
    uint64_t done = 0;
  };
  struct Incoming {
    FrameHeader header;
    std::string head;
    ScopedFd payload;
    uint64_t done = 0;
  };

  absl::Status OnPacket(NativeConnection& connection, Packet packet) override;
  void OnClosed(NativeConnection& connection, const absl::Status& why) override;
  void OnFramesSent(NativeConnection& connection) override;
  absl::Status OnBegin(const ControlMessage& message);
  absl::Status OnPiece(const std::string& packet);
  void Pump();
  // One piece of the next pair's first payload. False: nothing waits.
  bool SendPiece();
  void SendDeferred();
  void Beat();

  // Constant after construction.
  EventLoop* const loop_;
  Events* const events_;
  const absl::Duration silence_max_;
  const uint64_t payload_bytes_max_;

  // Confined to the loop.
  std::shared_ptr<NativeConnection> connection_;
  EventLoop::TimerId timer_ = 0;
  absl::Duration heard_;
  std::map<Pair, std::deque<Outgoing>> bulk_;
  std::optional<Pair> last_;  // whose piece was sent last
  size_t bulk_bytes_ = 0;
  uint32_t next_number_ = 1;
  std::deque<std::pair<ProcAddress, ControlMessage>> deferred_;
  std::map<uint32_t, Incoming> incoming_;
};

}  // namespace monarch
