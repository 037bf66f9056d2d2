#pragma once

#include <sys/types.h>

#include <cstdint>
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

// A listening Unix socket whose path it removes when destroyed. Threading: confined to the control loop.
class UnixListener {
 public:
  using Accepted = absl::AnyInvocable<void(ScopedFd fd, const PeerCredentials& peer)>;
  // Whose connections are accepted: this user's and root's, others being refused and logged; also those of
  // the operators' group, where there is one; everybody's.
  enum class Access : uint8_t { kOwner, kOperators, kEverybody };
  static constexpr char kOperatorsGroup[] = "monarch";
  // `type`: SOCK_STREAM or SOCK_SEQPACKET. AlreadyExists: the path is there. Accepted fds are non-blocking.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Start(EventLoop* loop, const std::string& path,
                                                             int type, Access access, Accepted accepted);
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

 private:
  UnixListener(EventLoop* loop, std::string path, ScopedFd fd, Access access, Accepted accepted)
      : loop_(loop),
        path_(std::move(path)),
        access_(access),
        fd_(std::move(fd)),
        accepted_(std::move(accepted)) {}
  void OnReady();

  EventLoop* const loop_;
  const std::string path_;
  const Access access_;
  ScopedFd fd_;
  Accepted accepted_;
};

}  // namespace monarch
