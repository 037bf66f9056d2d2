#include "message/packet_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

namespace monarch {
namespace {

struct Ends {
  PacketSocket a;
  PacketSocket b;
};

Ends MakeEnds() {
  auto pair = PacketSocket::Pair();
  REQUIRE(pair.ok());
  return {std::move(pair->first), std::move(pair->second)};
}

int OpenFds() {
  int count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

ScopedFd MakeEventFd() { return ScopedFd(eventfd(0, EFD_CLOEXEC)); }

// Past PacketSocket's own checks, as a hostile peer does.
ssize_t RawSend(int socket, std::string_view bytes, const std::vector<int>& fds) {
  alignas(cmsghdr) char control[1024] = {};
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

void CheckReceiveFails(PacketSocket* socket, absl::StatusCode code) {
  Packet packet = {"untouched", {}};
  CHECK(socket->TryReceive(&packet).status().code() == code);
  CHECK(packet.bytes == "untouched");
}

void CheckReceives(PacketSocket* socket, std::string_view bytes) {
  Packet packet;
  auto received = socket->TryReceive(&packet);
  REQUIRE(received.ok());
  REQUIRE(*received);
  CHECK(packet.bytes == bytes);
}

int FillUp(PacketSocket* socket, const std::string& packet) {
  int sent = 0;
  for (;;) {
    auto result = socket->TrySend(packet);
    REQUIRE(result.ok());
    if (!*result) return sent;
    ++sent;
  }
}

TEST_CASE("PacketSocketKeepsPacketsWhole") {
  Ends ends = MakeEnds();
  CHECK(*ends.a.TrySend("one"));
  CHECK(*ends.a.TrySend("he", "ad", {}));
  CHECK(*ends.b.TrySend("back"));
  CheckReceives(&ends.b, "one");
  CheckReceives(&ends.b, "head");
  CheckReceives(&ends.a, "back");
  Packet packet;
  CHECK(*ends.b.TryReceive(&packet) == false);
}

TEST_CASE("PacketSocketFdsArriveCloseOnExec") {
  Ends ends = MakeEnds();
  CHECK((fcntl(ends.a.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(ends.a.fd(), F_GETFL) & O_NONBLOCK) != 0);
  std::vector<ScopedFd> events;
  std::vector<int> fds;
  for (size_t i = 0; i < PacketSocket::kPacketFdsMax; ++i) {
    events.push_back(MakeEventFd());
    fds.push_back(events.back().get());
  }
  REQUIRE(*ends.a.TrySend("fds", fds));
  Packet packet;
  REQUIRE(*ends.b.TryReceive(&packet));
  REQUIRE(packet.fds.size() == fds.size());
  for (const ScopedFd& fd : packet.fds) CHECK((fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  // In order: what is written to the last one sent is read from the last one received.
  const uint64_t one = 1;
  REQUIRE(write(fds.back(), &one, sizeof(one)) == sizeof(one));
  uint64_t read_back = 0;
  REQUIRE(read(packet.fds.back().get(), &read_back, sizeof(read_back)) == sizeof(read_back));
  CHECK(read_back == 1);
}

TEST_CASE("PacketSocketDeliversDataBeforeTheEnd") {
  Ends ends = MakeEnds();
  const ScopedFd event = MakeEventFd();
  CHECK(*ends.a.TrySend("one"));
  CHECK(*ends.a.TrySend("two", {event.get()}));
  ends.a = PacketSocket();
  CheckReceives(&ends.b, "one");
  Packet packet;
  REQUIRE(*ends.b.TryReceive(&packet));
  CHECK(packet.bytes == "two");
  CHECK(packet.fds.size() == 1);
  CheckReceiveFails(&ends.b, absl::StatusCode::kUnavailable);
  CheckReceiveFails(&ends.b, absl::StatusCode::kUnavailable);
}

TEST_CASE("PacketSocketDeliversDataBeforeTheEndOfAPeerThatDidNotRead") {
  Ends ends = MakeEnds();
  CHECK(*ends.b.TrySend("never read"));
  CHECK(*ends.a.TrySend("last words"));
  ends.a = PacketSocket();
  CheckReceives(&ends.b, "last words");
  CheckReceiveFails(&ends.b, absl::StatusCode::kUnavailable);
}

TEST_CASE("PacketSocketSendToAClosedPeerIsUnavailableAndSticks") {
  Ends ends = MakeEnds();
  CHECK(*ends.a.TrySend("last words"));
  ends.a = PacketSocket();
  CHECK(ends.b.TrySend("x").status().code() == absl::StatusCode::kUnavailable);
  CHECK(ends.b.TrySend("x").status().code() == absl::StatusCode::kUnavailable);
  // The other direction is not spoilt.
  CheckReceives(&ends.b, "last words");
}

TEST_CASE("PacketSocketRefusesOversizedPacketsAndStaysUsable") {
  Ends ends = MakeEnds();
  const std::string largest(PacketSocket::kPacketBytesMax, 'x');
  CHECK(ends.a.TrySend(largest + "x").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ends.a.TrySend(largest, "x", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ends.a.TrySend("").status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(*ends.a.TrySend(largest));
  CheckReceives(&ends.b, largest);
}

TEST_CASE("PacketSocketRefusesBadFdsAndStaysUsable") {
  Ends ends = MakeEnds();
  const ScopedFd event = MakeEventFd();
  const std::vector<int> nine(PacketSocket::kPacketFdsMax + 1, event.get());
  CHECK(ends.a.TrySend("x", nine).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ends.a.TrySend("x", {-1}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(*ends.a.TrySend("y"));
  CheckReceives(&ends.b, "y");
}

TEST_CASE("PacketSocketSmallSendBufferRefusesAndStaysUsable") {
  Ends ends = MakeEnds();
  const int small = 4608;
  REQUIRE(setsockopt(ends.a.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
  CHECK(ends.a.TrySend(std::string(60'000, 'x')).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(*ends.a.TrySend("y"));
  CheckReceives(&ends.b, "y");
}

TEST_CASE("PacketSocketFullReturnsFalseUntilThereIsRoom") {
  Ends ends = MakeEnds();
  const std::string packet(16 * 1024, 'x');
  const int sent = FillUp(&ends.a, packet);
  CHECK(sent > 0);
  CHECK(WaitWritable(ends.a.fd(), 0).code() == absl::StatusCode::kDeadlineExceeded);
  for (int i = 0; i < sent; ++i) CheckReceives(&ends.b, packet);
  CHECK(WaitWritable(ends.a.fd(), 0).ok());
  CHECK(*ends.a.TrySend("again"));
  CheckReceives(&ends.b, "again");
}

TEST_CASE("PacketSocketRefusesTruncatedPacketsForGood") {
  Ends ends = MakeEnds();
  REQUIRE(RawSend(ends.a.fd(), std::string(PacketSocket::kPacketBytesMax + 1, 'x'), {}) > 0);
  REQUIRE(*ends.a.TrySend("after"));
  CheckReceiveFails(&ends.b, absl::StatusCode::kInvalidArgument);
  CheckReceiveFails(&ends.b, absl::StatusCode::kInvalidArgument);
}

TEST_CASE("PacketSocketMoreThanEightFdsLeakNone") {
  Ends ends = MakeEnds();
  const ScopedFd event = MakeEventFd();
  const int before = OpenFds();
  REQUIRE(RawSend(ends.a.fd(), "x", std::vector<int>(40, event.get())) == 1);
  CheckReceiveFails(&ends.b, absl::StatusCode::kInvalidArgument);
  CHECK(OpenFds() == before);
}

TEST_CASE("PacketSocketFdsBesideTruncatedBytesOrNoBytesLeakNone") {
  const ScopedFd event = MakeEventFd();
  Ends ends = MakeEnds();
  Ends others = MakeEnds();
  const int before = OpenFds();
  REQUIRE(RawSend(ends.a.fd(), std::string(PacketSocket::kPacketBytesMax + 1, 'x'), {event.get()}) > 0);
  CheckReceiveFails(&ends.b, absl::StatusCode::kInvalidArgument);
  REQUIRE(RawSend(others.a.fd(), "", {event.get()}) == 0);
  CheckReceiveFails(&others.b, absl::StatusCode::kUnavailable);
  CHECK(OpenFds() == before);
}

TEST_CASE("PacketSocketFullFdTableLeaksNone") {
  Ends ends = MakeEnds();
  const ScopedFd event = MakeEventFd();
  REQUIRE(*ends.a.TrySend("x", {event.get(), event.get(), event.get()}));
  const int before = OpenFds();
  // Room for one of the three.
  const ScopedFd probe = MakeEventFd();
  rlimit old_limit = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &old_limit) == 0);
  const rlimit tight = {static_cast<rlim_t>(probe.get()) + 2, old_limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  Packet packet;
  const auto received = ends.b.TryReceive(&packet);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &old_limit) == 0);
  CHECK(received.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(packet.fds.empty());
  CHECK(OpenFds() == before + 1);
}

TEST_CASE("PacketSocketConnects") {
  char dir[] = "/tmp/packet_socket_test.XXXXXX";
  REQUIRE(mkdtemp(dir) != nullptr);
  const std::string path = std::string(dir) + "/s";
  CHECK(PacketSocket::Connect(path).status().code() == absl::StatusCode::kNotFound);
  CHECK(PacketSocket::Connect("").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(PacketSocket::Connect(std::string(108, 'p')).status().code() == absl::StatusCode::kInvalidArgument);

  ScopedFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(listener.get(), 0) == 0);
  auto client = PacketSocket::Connect(path);
  REQUIRE(client.ok());
  // The backlog of 0 is full with one connection.
  CHECK(PacketSocket::Connect(path).status().code() == absl::StatusCode::kUnavailable);
  PacketSocket server(ScopedFd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  CHECK(*client->TrySend("hi"));
  CHECK(WaitReadable(server.fd(), 0).ok());
  CheckReceives(&server, "hi");
  listener.reset();
  CHECK(PacketSocket::Connect(path).status().code() == absl::StatusCode::kUnavailable);
  unlink(path.c_str());
  rmdir(dir);
}

TEST_CASE("PacketSocketWaitsTellTimeFromReadiness") {
  Ends ends = MakeEnds();
  CHECK(WaitReadable(ends.b.fd(), 0).code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(WaitReadable(ends.b.fd(), 1).code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(WaitWritable(ends.b.fd(), -1).ok());
  REQUIRE(*ends.a.TrySend("x"));
  CHECK(WaitReadable(ends.b.fd(), -1).ok());
  Ends closed = MakeEnds();
  closed.a = PacketSocket();
  CHECK(WaitReadable(closed.b.fd(), -1).ok());
}

TEST_CASE("PacketSocketWithoutFdReportsAnError") {
  PacketSocket none;
  Packet packet;
  CHECK_FALSE(none.TrySend("x").ok());
  CHECK_FALSE(none.TryReceive(&packet).ok());
}

}  // namespace
}  // namespace monarch
