#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"

namespace monarch {

// Who is at the other end of a local socket: the kernel's word.
struct PeerCredentials {
  uid_t uid = 0;
  pid_t pid = 0;
};
absl::StatusOr<PeerCredentials> ReadPeerCredentials(int fd);

// A listening Unix socket whose path it removes when destroyed. Peers other than this user and root are
// refused and logged. Threading: confined to the control loop.
class UnixListener {
 public:
  using Accepted = absl::AnyInvocable<void(ScopedFd fd, const PeerCredentials& peer)>;
  // `type`: SOCK_STREAM or SOCK_SEQPACKET. AlreadyExists: the path is there. Accepted fds are non-blocking.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Start(EventLoop* loop, const std::string& path,
                                                             int type, Accepted accepted);
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

 private:
  UnixListener(EventLoop* loop, std::string path, ScopedFd fd, Accepted accepted)
      : loop_(loop), path_(std::move(path)), fd_(std::move(fd)), accepted_(std::move(accepted)) {}
  void OnReady();

  EventLoop* const loop_;
  const std::string path_;
  ScopedFd fd_;
  Accepted accepted_;
};

}  // namespace monarch
