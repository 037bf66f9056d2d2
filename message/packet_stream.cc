#include "message/packet_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "message/bytes.h"

namespace monarch {
namespace {

constexpr size_t kLengthBytes = 4;

absl::Status StreamError(const char* operation, int error) {
  if (error == ECONNRESET || error == EPIPE || error == ETIMEDOUT)
    return absl::UnavailableError(absl::StrCat(operation, ": the connection broke"));
  return ErrnoStatus(operation, error);
}

}  // namespace

absl::StatusOr<bool> PacketStream::TrySend(std::string_view bytes, absl::Span<const int> fds) {
  if (bytes.empty() || bytes.size() > PacketSocket::kPacketBytesMax || !fds.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("send packet: ", bytes.size(), " bytes and ", fds.size(), " fds over a stream"));
  }
  MONARCH_ASSIGN_OR_RETURN(const bool flushed, Flush());
  if (!flushed) return false;
  std::string length;
  AppendLe<uint32_t>(&length, static_cast<uint32_t>(bytes.size()));
  iovec pieces[2] = {{length.data(), length.size()}, {const_cast<char*>(bytes.data()), bytes.size()}};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno == EAGAIN) return false;
  if (sent < 0) {
    send_status_ = StreamError("send packet", errno);
    return send_status_;
  }
  const auto done = static_cast<size_t>(sent);
  if (done == kLengthBytes + bytes.size()) return true;
  // The rest is owed: another packet in its place would be read as part of this one.
  unsent_ = length;
  unsent_ += bytes;
  unsent_at_ = done;
  return true;
}

absl::StatusOr<bool> PacketStream::Flush() {
  if (!send_status_.ok()) return send_status_;
  while (unsent_at_ < unsent_.size()) {
    const ssize_t sent = send(fd_.get(), unsent_.data() + unsent_at_, unsent_.size() - unsent_at_,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return false;
    if (sent < 0) {
      send_status_ = StreamError("send packet", errno);
      return send_status_;
    }
    unsent_at_ += static_cast<size_t>(sent);
  }
  unsent_.clear();
  unsent_at_ = 0;
  return true;
}

absl::StatusOr<bool> PacketStream::TryReceive(Packet* packet) {
  if (!receive_status_.ok()) return receive_status_;
  for (;;) {
    size_t wanted = kLengthBytes;
    if (received_.size() >= kLengthBytes) {
      const auto length = LoadLe<uint32_t>(received_.data());
      if (length == 0 || length > PacketSocket::kPacketBytesMax) {
        receive_status_ = absl::InvalidArgumentError(absl::StrCat("receive packet: length ", length));
        return receive_status_;
      }
      wanted += length;
      if (received_.size() == wanted) {
        packet->bytes = received_.substr(kLengthBytes);
        packet->fds.clear();
        received_.clear();
        return true;
      }
    }
    const size_t before = received_.size();
    received_.resize(wanted);
    const ssize_t got = recv(fd_.get(), received_.data() + before, wanted - before, MSG_DONTWAIT);
    received_.resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got < 0 && errno == EAGAIN) return false;
    receive_status_ = got == 0 ? absl::UnavailableError("receive packet: the peer has closed")
                               : StreamError("receive packet", errno);
    return receive_status_;
  }
}

}  // namespace monarch
