#include "daemon/notify_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"

namespace monarch {

absl::Status NotifySupervisor(const std::string& socket, const std::string& state) {
  if (socket.empty()) return absl::OkStatus();
  const std::string operation = absl::StrCat("notify ", socket);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof(address.sun_path)) return ErrnoStatus(operation, ENAMETOOLONG);
  std::memcpy(address.sun_path, socket.data(), socket.size());
  if (socket[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket.size());
  const ScopedFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(operation, errno);
  if (sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
             length) < 0) {
    return ErrnoStatus(operation, errno);
  }
  return absl::OkStatus();
}

}  // namespace monarch
