#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "daemon/host_address.h"
#include "message/control_message.h"
#include "message/packet_stream.h"

namespace monarch {

// A listening socket for other daemons. It accepts this user and root alone, by the kernel's word, reads the
// first packet of each connection, and hands both on. Removes a socket file when destroyed.
// Threading: confined to the control loop.
class PeerListener {
 public:
  struct Connection {
    std::unique_ptr<PacketStream> stream;
    uid_t uid = 0;
    ControlMessage hello;
  };
  using Accepted = absl::AnyInvocable<void(Connection)>;

  // AlreadyExists: somebody listens there. A socket file that nobody listens on is replaced.
  static absl::StatusOr<std::unique_ptr<PeerListener>> Start(EventLoop* loop, const HostAddress& address,
                                                             Accepted accepted);
  ~PeerListener();
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

 private:
  struct Pending {
    std::unique_ptr<PacketStream> stream;
    uid_t uid = 0;
    EventLoop::TimerId timer = 0;
  };
  PeerListener(EventLoop* loop, std::string path, ScopedFd fd, Accepted accepted)
      : loop_(loop), path_(std::move(path)), fd_(std::move(fd)), accepted_(std::move(accepted)) {}
  void OnReady();
  void OnHello(int fd);
  Pending Take(int fd);

  EventLoop* const loop_;
  const std::string path_;  // "": no file
  ScopedFd fd_;
  Accepted accepted_;
  std::map<int, Pending> pending_;
};

// Refuses the hello and waits for nothing: what does not fit the socket's buffer is lost.
void RefusePeer(PeerListener::Connection connection, const absl::Status& why);

// The user at the other end of a connected socket, Unix or loopback TCP. Unavailable: the peer has closed.
absl::StatusOr<uid_t> UserAtOtherEnd(int fd);

}  // namespace monarch
