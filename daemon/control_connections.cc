#include "daemon/control_connections.h"

#include <sys/socket.h>

#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

absl::StatusOr<uint64_t> CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) {
    return ErrnoStatus("look at a control connection", errno);
  }
  return cookie;
}

}  // namespace

absl::Status ControlConnections::Add(int fd, const std::string& owner) {
  MONARCH_ASSIGN_OR_RETURN(const uint64_t cookie, CookieOf(fd));
  // Of all, so that nothing is kept of processes that are gone.
  for (auto& [name, connections] : open_) {
    std::erase_if(connections, [](const Connection& connection) {
      const absl::StatusOr<uint64_t> now = CookieOf(connection.fd);
      return !now.ok() || *now != connection.cookie;
    });
  }
  std::erase_if(open_, [](const auto& entry) { return entry.second.empty(); });
  std::vector<Connection>& connections = open_[owner];
  if (static_cast<int64_t>(connections.size()) >= per_proc_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("open control: control_connections_per_proc_max=", per_proc_max_, " is reached"));
  }
  connections.push_back({fd, cookie});
  return absl::OkStatus();
}

}  // namespace monarch
