#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/scoped_fd.h"

namespace monarch {

// A packet as received. `fds` are close-on-exec.
struct Packet {
  std::string bytes;
  std::vector<ScopedFd> fds;
};

// A connected Unix SOCK_SEQPACKET socket: whole packets of at most kPacketBytesMax bytes and kPacketFdsMax
// fds, in order. Non-blocking. The first error sticks: later calls return it. Threading: one thread may send
// while another receives; each direction is confined to one thread at a time.
class PacketSocket {
 public:
  static constexpr size_t kPacketBytesMax = 64 * 1024;
  static constexpr size_t kPacketFdsMax = 8;

  PacketSocket() = default;
  explicit PacketSocket(ScopedFd fd) : fd_(std::move(fd)) {}
  static absl::StatusOr<std::pair<PacketSocket, PacketSocket>> Pair();
  static absl::StatusOr<PacketSocket> Connect(const std::string& path);

  // True: sent. False: no room now (wait for EPOLLOUT). Unavailable: the peer has closed. InvalidArgument:
  // too large.
  absl::StatusOr<bool> TrySend(std::string_view bytes, absl::Span<const int> fds = {});
  // Header and payload as one packet, without joining them first.
  absl::StatusOr<bool> TrySend(std::string_view head, std::string_view tail, absl::Span<const int> fds);
  // True: `packet` is set. False: none there now. Unavailable: the peer has closed, all that it sent was
  // returned. InvalidArgument: a truncated packet.
  absl::StatusOr<bool> TryReceive(Packet* packet);

  int fd() const { return fd_.get(); }
  ScopedFd ReleaseFd() { return std::move(fd_); }

 private:
  ScopedFd fd_;
  absl::Status send_status_;
  absl::Status receive_status_;
};

// Blocks until the socket is readable (writable) or `timeout_ms` passed (-1: none); returns on EINTR with
// Cancelled.
absl::Status WaitReadable(int fd, int timeout_ms);
absl::Status WaitWritable(int fd, int timeout_ms);

}  // namespace monarch
