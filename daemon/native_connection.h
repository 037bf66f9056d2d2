#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"
#include "message/packet_socket.h"
#include "message/packet_stream.h"

namespace monarch {

// One native control socket on the control loop: packets in, a bounded queue out, so that a peer that does
// not read delays nobody. Kept alive by its watch; Close() ends it, also from within its handler's calls.
// Threading: confined to the control loop.
class NativeConnection : public std::enable_shared_from_this<NativeConnection> {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // What is wrong with the packet; not OK closes the connection (then OnClosed follows).
    virtual absl::Status OnPacket(NativeConnection& connection, Packet packet) = 0;
    // Once; not after a Close() by the owner. Unavailable: the peer has closed. Else: it sent garbage or does
    // not read.
    virtual void OnClosed(NativeConnection& connection, const absl::Status& why) = 0;
    // Frames have left its queue: `frame_bytes` has become less.
    virtual void OnFramesSent(NativeConnection& /*connection*/) {}
  };
  struct Limits {
    size_t control_bytes_max = 8 << 20;  // reached: the peer is cut off, for it holds notices others wait for
    size_t frame_bytes_max = 16 << 20;   // reached: the frame is refused
    const char* frame_limit = "relay_proc_queue_bytes_max";  // the name of frame_bytes_max in that refusal
  };

  // `handler` outlives the connection, or closes it first.
  static std::shared_ptr<NativeConnection> Start(EventLoop* loop, PacketSocket socket, Handler* handler,
                                                 const Limits& limits);
  // Over a stream, as between daemons.
  static std::shared_ptr<NativeConnection> Start(EventLoop* loop, std::unique_ptr<PacketChannel> channel,
                                                 Handler* handler, const Limits& limits);

  // Sent now or queued (then with duplicates of the fds). A failure shows as OnClosed.
  void Send(const ControlMessage& message, absl::Span<const int> fds = {});
  // InvalidArgument: larger than a packet; nothing was sent and the connection is as before.
  absl::Status TrySend(const ControlMessage& message, absl::Span<const int> fds = {});
  // ResourceExhausted: its queue is full. Unavailable: closed. `payload`, if valid, goes along: a memfd that
  // counts as `payload_bytes` of the queue, however large, once there is room for it to begin.
  absl::Status SendFrame(std::string packet, ScopedFd payload = {}, size_t payload_bytes = 0);
  void Answer(uint32_t request, ControlType type, Value::Map body = {}, absl::Span<const int> fds = {});
  void Refuse(uint32_t request, const absl::Status& status);

  // Handles what the peer had sent so far, before its end is told to others.
  void DrainNow();
  void Close();
  // Whose packets they are from now on.
  void SetHandler(Handler* handler) { handler_ = handler; }
  bool closed() const { return closed_; }
  // All that was sent is in the kernel's hands.
  bool idle() const { return queue_.empty() && !unsent_ && !failing_; }
  // Of frames that wait for the peer to read.
  size_t frame_bytes() const { return frame_bytes_; }

  // Whose it is; the handler's to set.
  uint64_t proc = 0;

 private:
  struct Queued {
    std::string bytes;
    std::vector<ScopedFd> fds;
    bool is_frame = false;
    size_t counted = 0;  // of frame_bytes_ or control_bytes_
  };

  NativeConnection(EventLoop* loop, std::unique_ptr<PacketChannel> channel, Handler* handler,
                   const Limits& limits)
      : loop_(loop), channel_(std::move(channel)), limits_(limits), handler_(handler) {}
  void OnReady(uint32_t events);
  void Receive(size_t packets_max);
  void Flush();
  void Enqueue(Queued queued, absl::Span<const int> fds);
  void UpdateWatch();
  void RetryLater();
  // Whether the channel took it; then what it could not send at once is watched for.
  absl::StatusOr<bool> Give(std::string_view bytes, absl::Span<const int> fds);
  // Posted, so that nobody's state changes under a caller that is sending.
  void FailLater(absl::Status why);
  void Fail(const absl::Status& why);

  // Constant after construction.
  EventLoop* const loop_;
  std::unique_ptr<PacketChannel> channel_;
  const Limits limits_;

  // Confined to the loop.
  Handler* handler_;
  std::deque<Queued> queue_;
  size_t control_bytes_ = 0;
  size_t frame_bytes_ = 0;
  EventLoop::TimerId retry_timer_ = 0;
  bool unsent_ = false;  // in the channel
  bool closed_ = false;
  bool failing_ = false;
};

}  // namespace monarch
