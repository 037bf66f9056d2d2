#include "daemon/unix_listener.h"

#include <grp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr int kBacklog = 256;
// The kernel's table is full: looking again at once would spin, for the connection stays pending.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

absl::Status LetIn(UnixListener::Access access, const std::string& path) {
  mode_t mode = 0600;
  if (access == UnixListener::Access::kEverybody) mode = 0666;
  if (access == UnixListener::Access::kOperators) {
    const group* const operators = getgrnam(UnixListener::kOperatorsGroup);
    if (operators != nullptr && chown(path.c_str(), static_cast<uid_t>(-1), operators->gr_gid) != 0)
      return ErrnoStatus(absl::StrCat("give ", path, " to group ", UnixListener::kOperatorsGroup), errno);
    if (operators != nullptr) mode = 0660;
  }
  if (chmod(path.c_str(), mode) != 0) return ErrnoStatus(absl::StrCat("set the mode of ", path), errno);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PeerCredentials> ReadPeerCredentials(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return ErrnoStatus("read peer credentials", errno);
  return PeerCredentials{peer.uid, peer.pid};
}

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Start(EventLoop* loop, const std::string& path,
                                                                  int type, Access access,
                                                                  Accepted accepted) {
  const std::string operation = absl::StrCat("listen on ", path);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(operation, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  ScopedFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(operation, errno);
  // Until its mode is set nobody but this user gets at it.
  const mode_t mask = umask(0177);
  const bool bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  umask(mask);
  if (!bound) return ErrnoStatus(operation, error == EADDRINUSE ? EEXIST : error);
  MONARCH_RETURN_IF_ERROR(LetIn(access, path));
  if (listen(fd.get(), kBacklog) != 0) return ErrnoStatus(operation, errno);
  const int number = fd.get();
  std::unique_ptr<UnixListener> listener(
      new UnixListener(loop, path, std::move(fd), access, std::move(accepted)));
  const absl::Status watched =
      loop->WatchFd(number, EPOLLIN, [self = listener.get()](uint32_t) { self->OnReady(); });
  if (!watched.ok()) return watched;
  return listener;
}

UnixListener::~UnixListener() {
  loop_->Unwatch(fd_.get());
  unlink(path_.c_str());
}

void UnixListener::OnReady() {
  ScopedFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    LogError("daemon", "cannot accept")
        .With("path", path_)
        .With("error", ErrnoStatus("accept", errno).ToString());
    (void)loop_->UpdateWatch(fd_.get(), 0);
    loop_->RunAfter(kAcceptPause,
                    [loop = loop_, number = fd_.get()] { (void)loop->UpdateWatch(number, EPOLLIN); });
    return;
  }
  const absl::StatusOr<PeerCredentials> peer = ReadPeerCredentials(fd.get());
  if (!peer.ok()) return;
  // Else the socket's mode has decided.
  if (access_ == Access::kOwner && peer->uid != geteuid() && peer->uid != 0) {
    LogWarning("daemon", "connection refused: another user")
        .With("path", path_)
        .With("uid", peer->uid)
        .With("pid", peer->pid);
    return;
  }
  accepted_(std::move(fd), *peer);
}

}  // namespace monarch
