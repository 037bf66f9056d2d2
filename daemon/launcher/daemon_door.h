#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/packet_socket.h"

namespace monarch {

// Where the next daemon finds this launcher: a socket in the daemon's run directory. Who is let in is of this
// user or root, and names the token in its first message. Threading: confined to the launcher's loop.
class DaemonDoor {
 public:
  using Arrived = std::function<void(PacketSocket)>;
  // `arrived`: a daemon that named the token; its kResume has been taken.
  static absl::StatusOr<std::unique_ptr<DaemonDoor>> Open(EventLoop* loop, const std::string& path,
                                                          const StartToken& token, Arrived arrived);
  // Removes the path.
  ~DaemonDoor();
  DaemonDoor(const DaemonDoor&) = delete;
  DaemonDoor& operator=(const DaemonDoor&) = delete;

 private:
  DaemonDoor(EventLoop* loop, std::string path, const StartToken& token, ScopedFd listener, Arrived arrived);
  void OnKnock();
  void OnGuest();
  void DropGuest();

  EventLoop* const loop_;
  const std::string path_;
  const StartToken token_;
  const ScopedFd listener_;
  const Arrived arrived_;
  PacketSocket guest_;  // has not named the token yet; a later one takes its place
};

}  // namespace monarch
