#include "message/packet_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

namespace monarch {
namespace {

struct Ends {
  ScopedFd a;
  ScopedFd b;
};

Ends Pair() {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  return {ScopedFd(fds[0]), ScopedFd(fds[1])};
}

void Write(const ScopedFd& fd, const std::string& bytes) {
  REQUIRE(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

}  // namespace

TEST_CASE("StreamKeepsPacketsWholeAndInOrder") {
  Ends ends = Pair();
  PacketStream sender(std::move(ends.a));
  PacketStream receiver(std::move(ends.b));
  const std::string large(PacketSocket::kPacketBytesMax, 'l');
  Packet packet;
  CHECK_FALSE(*receiver.TryReceive(&packet));
  int sent = 0;
  while (*sender.TrySend(sent % 2 == 0 ? large : "small", {})) ++sent;
  REQUIRE(sent >= 2);
  // What was taken in part is sent before anything else.
  for (int i = 0; i < sent; ++i) {
    while (!*receiver.TryReceive(&packet)) REQUIRE(sender.Flush().ok());
    CHECK(packet.bytes == (i % 2 == 0 ? large : "small"));
  }
  CHECK(*sender.Flush());
  CHECK_FALSE(*receiver.TryReceive(&packet));
}

TEST_CASE("StreamTakesNoByteBeyondAPacket") {
  Ends ends = Pair();
  Write(ends.a, std::string("\x02\x00\x00\x00hiREST", 10));
  PacketStream receiver(std::move(ends.b));
  Packet packet;
  REQUIRE(*receiver.TryReceive(&packet));
  CHECK(packet.bytes == "hi");
  const ScopedFd fd = receiver.ReleaseFd();
  char rest[8];
  REQUIRE(read(fd.get(), rest, sizeof(rest)) == 4);
  CHECK(std::string(rest, 4) == "REST");
}

TEST_CASE("StreamRefusesImpossibleLengthsForGood") {
  for (const std::string& head :
       {std::string(4, '\0'), std::string("\x01\x00\x01\x00", 4), std::string(4, '\xff')}) {
    Ends ends = Pair();
    Write(ends.a, head);
    PacketStream receiver(std::move(ends.b));
    Packet packet;
    CHECK(absl::IsInvalidArgument(receiver.TryReceive(&packet).status()));
    CHECK(absl::IsInvalidArgument(receiver.TryReceive(&packet).status()));
  }
}

TEST_CASE("StreamTellsThePeersEndAlsoWithinAPacket") {
  Ends ends = Pair();
  Write(ends.a, std::string("\x09\x00\x00\x00hal", 7));
  ends.a.reset();
  PacketStream receiver(std::move(ends.b));
  Packet packet;
  CHECK(absl::IsUnavailable(receiver.TryReceive(&packet).status()));
  CHECK(absl::IsUnavailable(receiver.TrySend("x", {}).status()));
}

TEST_CASE("StreamCarriesNoFds") {
  Ends ends = Pair();
  PacketStream sender(std::move(ends.a));
  const int fd = 0;
  CHECK(absl::IsInvalidArgument(sender.TrySend("x", absl::MakeConstSpan(&fd, 1)).status()));
  CHECK(absl::IsInvalidArgument(sender.TrySend("", {}).status()));
  CHECK(*sender.TrySend("x", {}));
}

}  // namespace monarch
