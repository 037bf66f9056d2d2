#include "message/large_body.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "message/memfd.h"
#include "message/packet_socket.h"
#include "message/value.h"

namespace monarch {
namespace {

// The only key of a body that stands for one in a memfd.
constexpr char kBytesKey[] = "body_bytes";

absl::Status WriteAll(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return ErrnoStatus("write a message's body", put < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

// By read, not by a mapping: the copy is what is checked, whatever the sender writes meanwhile.
absl::StatusOr<std::string> ReadAll(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(fd, bytes.data() + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("read a message's body", errno);
    if (got == 0) return absl::InvalidArgumentError("message body: the memfd ends early");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<ScopedFd> MoveLargeBodyOut(ControlMessage* message) {
  MONARCH_ASSIGN_OR_RETURN(const std::string packet, EncodeControl(*message));
  if (packet.size() <= PacketSocket::kPacketBytesMax) return ScopedFd();
  MONARCH_ASSIGN_OR_RETURN(const std::string body, EncodeValue(message->body));
  if (body.size() > kLargeBodyBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("message body: ", body.size(), " bytes, large_body_bytes_max=", kLargeBodyBytesMax));
  }
  MONARCH_ASSIGN_OR_RETURN(ScopedFd fd, CreateSealedMemfd("monarch-body", body.size()));
  MONARCH_RETURN_IF_ERROR(WriteAll(fd.get(), body));
  message->body = Value::Map{{kBytesKey, static_cast<int64_t>(body.size())}};
  return fd;
}

absl::Status MoveLargeBodyIn(ControlMessage* message, std::vector<ScopedFd>* fds) {
  const Value::Map* stub = message->body.map();
  if (stub == nullptr || stub->size() != 1 || !stub->contains(kBytesKey)) return absl::OkStatus();
  MONARCH_ASSIGN_OR_RETURN(const int64_t size, message->body[kBytesKey].AsInt());
  if (size <= 0 || static_cast<uint64_t>(size) > kLargeBodyBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("message body: ", size, " bytes, large_body_bytes_max=", kLargeBodyBytesMax));
  }
  if (fds->empty()) return absl::InvalidArgumentError("message body: no memfd came along");
  const ScopedFd fd = std::move(fds->back());
  fds->pop_back();
  const auto bytes = static_cast<size_t>(size);
  MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(fd.get(), bytes, bytes).status());
  MONARCH_ASSIGN_OR_RETURN(const std::string text, ReadAll(fd.get(), bytes));
  MONARCH_ASSIGN_OR_RETURN(Value body, DecodeValue(text));
  if (body.map() == nullptr) return absl::InvalidArgumentError("message body: the memfd holds no map");
  message->body = std::move(body);
  return absl::OkStatus();
}

}  // namespace monarch
