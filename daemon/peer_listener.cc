#include "daemon/peer_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/unix_listener.h"

namespace monarch {
namespace {

constexpr int kBacklog = 256;
constexpr absl::Duration kHelloMax = absl::Seconds(10);
constexpr size_t kPendingMax = 256;
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

// An end of a TCP connection as /proc/net/tcp and tcp6 write it.
std::string ProcNetName(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    return absl::StrFormat("%08X:%04X", v4->sin_addr.s_addr, ntohs(v4->sin_port));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  uint32_t words[4];
  std::memcpy(words, &v6->sin6_addr, sizeof(words));
  return absl::StrFormat("%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3],
                         ntohs(v6->sin6_port));
}

absl::StatusOr<uid_t> TcpUser(int fd) {
  sockaddr_storage own = {};
  sockaddr_storage peer = {};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return ErrnoStatus("look at a TCP connection", errno);
  }
  // The other end's socket is in the same table, for the connection is on this host.
  const std::string local = ProcNetName(peer);
  const std::string remote = ProcNetName(own);
  std::ifstream table(own.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  std::string line;
  while (std::getline(table, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint32_t uid = 0;
    if (fields.size() > 7 && fields[1] == local && fields[2] == remote && absl::SimpleAtoi(fields[7], &uid))
      return static_cast<uid_t>(uid);
  }
  return absl::UnavailableError("the other end of a TCP connection is gone, or on another machine");
}

// Whether somebody listens on the socket file.
bool IsLive(const HostAddress::Socket& socket_address) {
  const ScopedFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(probe.get(), socket_address.get(), socket_address.size) == 0 || errno == EAGAIN;
}

absl::StatusOr<ScopedFd> TakeListening(const HostAddress& address) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  if (getsockopt(address.fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address.text, "': fd ", address.fd, " is no inherited listening socket"));
  }
  ScopedFd fd(address.fd);
  if (fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 ||
      fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0) {
    return ErrnoStatus(absl::StrCat("take listening socket ", address.fd), errno);
  }
  return fd;
}

absl::StatusOr<ScopedFd> Listen(const HostAddress& address) {
  const std::string operation = absl::StrCat("listen on ", address.text);
  MONARCH_ASSIGN_OR_RETURN(const HostAddress::Socket socket_address, address.ToSocket());
  ScopedFd fd(socket(socket_address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(operation, errno);
  const bool is_path = address.kind == HostAddress::Kind::kPath;
  if (is_path && access(address.name.c_str(), F_OK) == 0) {
    if (IsLive(socket_address))
      return absl::AlreadyExistsError(absl::StrCat(operation, ": another process listens there"));
    struct stat file = {};
    if (lstat(address.name.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode) || file.st_uid != geteuid())
      return absl::AlreadyExistsError(
          absl::StrCat(operation, ": the file is there and no socket of this user's"));
    unlink(address.name.c_str());
  }
  if (address.kind == HostAddress::Kind::kTcp) {
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  // The mask, so that nobody else can connect before a chmod.
  const mode_t before = umask(0177);
  const int bound = bind(fd.get(), socket_address.get(), socket_address.size);
  const int error = errno;
  umask(before);
  if (bound != 0) return ErrnoStatus(operation, error == EADDRINUSE ? EEXIST : error);
  if (listen(fd.get(), kBacklog) != 0) return ErrnoStatus(operation, errno);
  return fd;
}

}  // namespace

absl::StatusOr<uid_t> UserAtOtherEnd(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0)
    return ErrnoStatus("look at a connection", errno);
  if (domain != AF_UNIX) return TcpUser(fd);
  MONARCH_ASSIGN_OR_RETURN(const PeerCredentials peer, ReadPeerCredentials(fd));
  return peer.uid;
}

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Start(EventLoop* loop, const HostAddress& address,
                                                                  Accepted accepted) {
  const bool inherited = address.kind == HostAddress::Kind::kListeningFd;
  MONARCH_ASSIGN_OR_RETURN(ScopedFd fd, inherited ? TakeListening(address) : Listen(address));
  const int number = fd.get();
  const std::string path = address.kind == HostAddress::Kind::kPath ? address.name : "";
  std::unique_ptr<PeerListener> listener(new PeerListener(loop, path, std::move(fd), std::move(accepted)));
  MONARCH_RETURN_IF_ERROR(
      loop->WatchFd(number, EPOLLIN, [self = listener.get()](uint32_t) { self->OnReady(); }));
  return listener;
}

PeerListener::~PeerListener() {
  loop_->Unwatch(fd_.get());
  if (!path_.empty()) unlink(path_.c_str());
  while (!pending_.empty()) Take(pending_.begin()->first);
}

PeerListener::Pending PeerListener::Take(int fd) {
  const auto found = pending_.find(fd);
  Pending pending = std::move(found->second);
  pending_.erase(found);
  loop_->Unwatch(fd);
  if (pending.timer != 0) loop_->Cancel(pending.timer);
  return pending;
}

void PeerListener::OnReady() {
  ScopedFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    LogError("daemon", "cannot accept").With("error", ErrnoStatus("accept", errno).ToString());
    static_cast<void>(loop_->UpdateWatch(fd_.get(), 0));
    loop_->RunAfter(kAcceptPause, [loop = loop_, number = fd_.get()] {
      static_cast<void>(loop->UpdateWatch(number, EPOLLIN));
    });
    return;
  }
  const absl::StatusOr<uid_t> uid = UserAtOtherEnd(fd.get());
  if (!uid.ok() || (*uid != geteuid() && *uid != 0) || pending_.size() >= kPendingMax) {
    LogWarning("daemon", "connection of a daemon refused")
        .With("reason",
              !uid.ok() ? std::string(uid.status().message()) : "another user, or too many at once");
    return;
  }
  const int number = fd.get();
  const int on = 1;
  // Fails on a Unix socket, which has no need of it.
  setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Pending pending;
  pending.uid = *uid;
  pending.stream = std::make_unique<PacketStream>(std::move(fd));
  pending.timer = loop_->RunAfter(kHelloMax, [this, number] {
    pending_.at(number).timer = 0;
    Take(number);
  });
  pending_.emplace(number, std::move(pending));
  if (!loop_->WatchFd(number, EPOLLIN, [this, number](uint32_t) { OnHello(number); }).ok()) Take(number);
}

void PeerListener::OnHello(int fd) {
  Packet packet;
  const absl::StatusOr<bool> got = pending_.at(fd).stream->TryReceive(&packet);
  if (got.ok() && !*got) return;
  Pending pending = Take(fd);
  if (!got.ok()) return;
  absl::StatusOr<ControlMessage> hello = DecodeControl(packet.bytes);
  if (!hello.ok() || hello->type != ControlType::kPeerHello) {
    LogWarning("daemon", "connection of a daemon refused").With("reason", "its first packet is no hello");
    return;
  }
  accepted_(Connection{std::move(pending.stream), pending.uid, *std::move(hello)});
}

void RefusePeer(PeerListener::Connection connection, const absl::Status& why) {
  LogWarning("daemon", "daemon refused").With("reason", std::string(why.message()));
  const ControlMessage refusal{
      ControlType::kRefused, 1,
      Value::Map{{"code", Value(why.raw_code())}, {"message", Value(std::string(why.message()))}}};
  const absl::StatusOr<std::string> packet = EncodeControl(refusal);
  if (packet.ok()) static_cast<void>(connection.stream->TrySend(*packet, {}));
}

}  // namespace monarch
