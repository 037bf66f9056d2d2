#include "message/packet_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"

namespace monarch {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr size_t kFdsBytesMax = PacketSocket::kPacketFdsMax * sizeof(int);

// Room for the fds of one packet and no more: the kernel installs none beyond it, and says MSG_CTRUNC.
union FdsBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(kFdsBytesMax)];
};

void AttachFds(absl::Span<const int> fds, FdsBuffer* buffer, msghdr* message) {
  std::memset(buffer, 0, sizeof(*buffer));
  message->msg_control = buffer->bytes;
  message->msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* control = CMSG_FIRSTHDR(message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(control), fds.data(), fds.size() * sizeof(int));
}

// Takes ownership of all fds that came along, whatever else is wrong with the packet.
std::vector<ScopedFd> TakeFds(msghdr* message) {
  std::vector<ScopedFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

absl::Status Wait(int fd, short events, int timeout_ms) {
  pollfd entry = {fd, events, 0};
  const int ready = poll(&entry, 1, timeout_ms);
  if (ready < 0) {
    if (errno == EINTR) return absl::CancelledError("poll: interrupted by a signal");
    return ErrnoStatus("poll", errno);
  }
  if (ready == 0)
    return absl::DeadlineExceededError(absl::StrCat("poll: nothing within ", timeout_ms, " ms"));
  if ((entry.revents & POLLNVAL) != 0) return ErrnoStatus("poll", EBADF);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::pair<PacketSocket, PacketSocket>> PacketSocket::Pair() {
  int fds[2];
  if (socketpair(AF_UNIX, kSocketType, 0, fds) != 0) return ErrnoStatus("socketpair", errno);
  return std::make_pair(PacketSocket(ScopedFd(fds[0])), PacketSocket(ScopedFd(fds[1])));
}

absl::StatusOr<PacketSocket> PacketSocket::Connect(const std::string& path) {
  const std::string operation = absl::StrCat("connect ", path);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty()) return absl::InvalidArgumentError("connect: empty path");
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(operation, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  ScopedFd fd(socket(AF_UNIX, kSocketType, 0));
  if (!fd.valid()) return ErrnoStatus("socket", errno);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EINTR) continue;
    // Worth another try, like a refused connection, which has the same code.
    if (errno == EAGAIN)
      return absl::UnavailableError(absl::StrCat(operation, ": the listener's backlog is full"));
    return ErrnoStatus(operation, errno);
  }
  return PacketSocket(std::move(fd));
}

absl::StatusOr<bool> PacketSocket::TrySend(std::string_view bytes, absl::Span<const int> fds) {
  return TrySend(bytes, std::string_view(), fds);
}

absl::StatusOr<bool> PacketSocket::TrySend(std::string_view head, std::string_view tail,
                                           absl::Span<const int> fds) {
  if (!send_status_.ok()) return send_status_;
  const size_t size = head.size() + tail.size();
  // A packet without bytes would look like the end to its receiver.
  if (size == 0) return absl::InvalidArgumentError("send packet: empty");
  if (size > kPacketBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("send packet: ", size, " bytes, at most ", kPacketBytesMax));
  }
  if (fds.size() > kPacketFdsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("send packet: ", fds.size(), " fds, at most ", kPacketFdsMax));
  }
  iovec pieces[2] = {{const_cast<char*>(head.data()), head.size()},
                     {const_cast<char*>(tail.data()), tail.size()}};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  FdsBuffer control;
  if (!fds.empty()) AttachFds(fds, &control, &message);
  for (;;) {
    if (sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EAGAIN) return false;
    // Nothing was sent and the socket is as good as before: a send buffer smaller than the packet, too many
    // fds of this user under way, or one of `fds` is none.
    if (error == EMSGSIZE)
      return absl::InvalidArgumentError("send packet: larger than the socket's send buffer");
    if (error == ETOOMANYREFS) return absl::ResourceExhaustedError("send packet: too many fds under way");
    if (error == EBADF && !fds.empty() && fd_.valid())
      return absl::InvalidArgumentError("send packet: not an open fd");
    send_status_ = ErrnoStatus("send packet", error);
    return send_status_;
  }
}

absl::StatusOr<bool> PacketSocket::TryReceive(Packet* packet) {
  if (!receive_status_.ok()) return receive_status_;
  char bytes[kPacketBytesMax];
  FdsBuffer control;
  for (;;) {
    iovec piece = {bytes, sizeof(bytes)};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    const ssize_t size = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) {
      if (errno == EAGAIN) return false;
      // A peer that closed with packets of ours unread leaves ECONNRESET, once, before what it sent; the end
      // follows as an end.
      if (errno == EINTR || errno == ECONNRESET) continue;
      receive_status_ = ErrnoStatus("receive packet", errno);
      return receive_status_;
    }
    std::vector<ScopedFd> fds = TakeFds(&message);
    if ((message.msg_flags & MSG_TRUNC) != 0) {
      receive_status_ = absl::InvalidArgumentError(
          absl::StrCat("receive packet: truncated, more than ", kPacketBytesMax, " bytes"));
      return receive_status_;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      receive_status_ = absl::InvalidArgumentError(absl::StrCat(
          "receive packet: fds truncated, more than ", kPacketFdsMax, " or no room in this process's table"));
      return receive_status_;
    }
    if (size == 0) {
      receive_status_ = absl::UnavailableError("receive packet: the peer has closed");
      return receive_status_;
    }
    packet->bytes.assign(bytes, static_cast<size_t>(size));
    packet->fds = std::move(fds);
    return true;
  }
}

absl::Status WaitReadable(int fd, int timeout_ms) { return Wait(fd, POLLIN, timeout_ms); }

absl::Status WaitWritable(int fd, int timeout_ms) { return Wait(fd, POLLOUT, timeout_ms); }

}  // namespace monarch
