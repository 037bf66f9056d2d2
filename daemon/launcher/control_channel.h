#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"
#include "message/packet_socket.h"

namespace monarch {

// Control messages over one native control socket on a loop. What a full socket does not take waits here,
// bounded. Threading: confined to the loop. Callbacks never run inside Send, and none runs after `closed` or
// the destructor; they may destroy the channel.
class ControlChannel {
 public:
  using MessageCallback = absl::AnyInvocable<void(ControlMessage message, std::vector<ScopedFd> fds)>;
  // InvalidArgument: the peer sent what is no control message. Unavailable: it has closed. ResourceExhausted:
  // it does not read. Once; the socket is closed already.
  using ClosedCallback = absl::AnyInvocable<void(absl::Status reason)>;

  ControlChannel(EventLoop* loop, PacketSocket socket, MessageCallback message, ClosedCallback closed);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  void Send(const ControlMessage& message, std::vector<ScopedFd> fds = {});
  // Everything sent has been taken by the socket, or it is closed.
  bool idle() const { return queue_.empty(); }
  bool open() const { return open_; }

 private:
  struct Queued {
    std::string packet;
    std::vector<ScopedFd> fds;
  };

  void OnEvents(uint32_t events);
  void ReceiveSome();
  void SendQueued();
  void RetryLater();
  void CloseWith(absl::Status reason);
  void Shut();

  EventLoop* const loop_;
  PacketSocket socket_;
  std::shared_ptr<MessageCallback> message_;  // shared, so that it outlives a channel destroyed inside it
  ClosedCallback closed_;
  // False once this object is gone: callbacks and posted tasks look before they touch it.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool open_ = true;
  bool retry_armed_ = false;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
};

}  // namespace monarch
