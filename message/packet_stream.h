#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/scoped_fd.h"
#include "message/packet_socket.h"

namespace monarch {

// Whole packets, in order, over something. Non-blocking; the first error sticks.
// Threading: confined to one thread.
class PacketChannel {
 public:
  virtual ~PacketChannel() = default;
  // As PacketSocket's.
  virtual absl::StatusOr<bool> TrySend(std::string_view bytes, absl::Span<const int> fds) = 0;
  virtual absl::StatusOr<bool> TryReceive(Packet* packet) = 0;
  virtual int fd() const = 0;
  // True: nothing of a packet that was sent waits for room. False: call again on EPOLLOUT.
  virtual absl::StatusOr<bool> Flush() { return true; }
};

// Packets over a connected stream socket (Unix or TCP), each behind its length (WIRE.md). It takes no byte
// from the socket beyond the packet that it returns, so that a socket can change its protocol behind one.
// No fds. Threading: confined to one thread.
class PacketStream final : public PacketChannel {
 public:
  explicit PacketStream(ScopedFd fd) : fd_(std::move(fd)) {}

  // InvalidArgument: too large, empty, or with fds.
  absl::StatusOr<bool> TrySend(std::string_view bytes, absl::Span<const int> fds) override;
  // Unavailable: the peer has closed, or the connection broke. InvalidArgument: an impossible length.
  absl::StatusOr<bool> TryReceive(Packet* packet) override;
  int fd() const override { return fd_.get(); }
  absl::StatusOr<bool> Flush() override;
  // When nothing is unsent: what follows the packets is another's business.
  ScopedFd ReleaseFd() { return std::move(fd_); }

 private:
  ScopedFd fd_;
  std::string unsent_;
  size_t unsent_at_ = 0;
  std::string received_;  // a packet's length and beginning
  absl::Status send_status_;
  absl::Status receive_status_;
};

}  // namespace monarch
