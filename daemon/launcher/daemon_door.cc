#include "daemon/launcher/daemon_door.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "message/control_message.h"

namespace monarch {
namespace {

constexpr int kBacklog = 4;

bool IsOwnOrRoot(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonDoor>> DaemonDoor::Open(EventLoop* loop, const std::string& path,
                                                             const StartToken& token, Arrived arrived) {
  const std::string operation = absl::StrCat("listen on ", path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(operation, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  ScopedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(operation, errno);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(operation, errno);
  }
  const int number = fd.get();
  std::unique_ptr<DaemonDoor> door(new DaemonDoor(loop, path, token, std::move(fd), std::move(arrived)));
  const absl::Status watched =
      loop->WatchFd(number, EPOLLIN, [self = door.get()](uint32_t) { self->OnKnock(); });
  if (!watched.ok()) return watched;
  return door;
}

DaemonDoor::DaemonDoor(EventLoop* loop, std::string path, const StartToken& token, ScopedFd listener,
                       Arrived arrived)
    : loop_(loop),
      path_(std::move(path)),
      token_(token),
      listener_(std::move(listener)),
      arrived_(std::move(arrived)) {}

DaemonDoor::~DaemonDoor() {
  DropGuest();
  loop_->Unwatch(listener_.get());
  unlink(path_.c_str());
}

void DaemonDoor::DropGuest() {
  if (guest_.fd() < 0) return;
  loop_->Unwatch(guest_.fd());
  guest_ = PacketSocket();
}

void DaemonDoor::OnKnock() {
  ScopedFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid() || !IsOwnOrRoot(fd.get())) return;
  DropGuest();
  guest_ = PacketSocket(std::move(fd));
  const absl::Status watched = loop_->WatchFd(guest_.fd(), EPOLLIN, [this](uint32_t) { OnGuest(); });
  if (!watched.ok()) guest_ = PacketSocket();
}

void DaemonDoor::OnGuest() {
  Packet packet;
  const absl::StatusOr<bool> received = guest_.TryReceive(&packet);
  if (received.ok() && !*received) return;
  ControlMessage message;
  if (received.ok()) message = DecodeControl(packet.bytes).value_or(ControlMessage());
  const absl::StatusOr<Id128> token = Id128FromValue(message.body["token"]);
  if (message.type != ControlType::kResume || !token.ok() || *token != token_) {
    LogWarning("launcher", "a daemon to be was turned away");
    return DropGuest();
  }
  loop_->Unwatch(guest_.fd());
  arrived_(std::exchange(guest_, PacketSocket()));
}

}  // namespace monarch
