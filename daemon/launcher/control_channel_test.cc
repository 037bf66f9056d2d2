#include "daemon/launcher/control_channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "message/fds_under_way.h"

namespace monarch {
namespace {

struct Fixture {
  Fixture() {
    absl::StatusOr<std::unique_ptr<EventLoop>> made = MakeEpollEventLoop();
    REQUIRE(made.ok());
    loop = *std::move(made);
    absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
    REQUIRE(pair.ok());
    peer = std::move(pair->second);
    channel = std::make_unique<ControlChannel>(
        loop.get(), std::move(pair->first),
        [this](ControlMessage message, std::vector<ScopedFd> fds) {
          messages.push_back(std::move(message));
          fd_count += fds.size();
          if (messages.size() == stop_at) loop->Stop();
          if (destroy_on_message) {
            channel.reset();
            loop->Stop();
          }
        },
        [this](absl::Status status) {
          reason = std::move(status);
          ++closed;
          loop->Stop();
        });
  }
  void Run() {
    loop->RunAfter(absl::Seconds(20), [this] { loop->Stop(); });
    loop->Run();
  }
  void PeerSends(const std::string& bytes, absl::Span<const int> fds = {}) {
    const absl::StatusOr<bool> sent = peer.TrySend(bytes, fds);
    REQUIRE(sent.ok());
    REQUIRE(*sent);
  }

  std::unique_ptr<EventLoop> loop;
  PacketSocket peer;
  std::vector<ControlMessage> messages;
  size_t fd_count = 0;
  size_t stop_at = 0;
  bool destroy_on_message = false;
  int closed = 0;
  absl::Status reason;
  std::unique_ptr<ControlChannel> channel;
};

std::string Message(uint32_t request) {
  return *EncodeControl({ControlType::kOk, request, Value(Value::Map{})});
}

TEST_CASE("DeliversMessagesWithTheirFds") {
  Fixture f;
  const ScopedFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fds[] = {null.get()};
  f.PeerSends(Message(1), fds);
  f.PeerSends(Message(2));
  f.stop_at = 2;
  f.Run();
  REQUIRE(f.messages.size() == 2);
  CHECK(f.messages[1].request == 2);
  CHECK(f.fd_count == 1);
}

TEST_CASE("ClosesOnGarbageOnce") {
  Fixture f;
  f.PeerSends("garbage");
  f.PeerSends(Message(1));
  f.Run();
  CHECK(f.closed == 1);
  CHECK(absl::IsInvalidArgument(f.reason));
  CHECK(f.messages.empty());
  Packet packet;
  const absl::StatusOr<bool> received = f.peer.TryReceive(&packet);
  CHECK(absl::IsUnavailable(received.status()));
}

TEST_CASE("DeliversWhatCameBeforeTheEnd") {
  Fixture f;
  f.PeerSends(Message(1));
  f.peer = PacketSocket();
  f.Run();
  CHECK(f.messages.size() == 1);
  CHECK(f.closed == 1);
  CHECK(absl::IsUnavailable(f.reason));
}

TEST_CASE("QueuesWhatAFullSocketDoesNotTake") {
  Fixture f;
  for (uint32_t i = 1; i <= 5000; ++i) f.channel->Send({ControlType::kOk, i, Value(Value::Map{})});
  CHECK_FALSE(f.channel->idle());
  uint32_t next = 1;
  REQUIRE(f.loop
              ->WatchFd(f.peer.fd(), 1 /* EPOLLIN */,
                        [&f, &next](uint32_t) {
                          Packet packet;
                          while (f.peer.TryReceive(&packet).value_or(false)) {
                            const absl::StatusOr<ControlMessage> message = DecodeControl(packet.bytes);
                            if (message.ok() && message->request == next) ++next;
                          }
                          if (next == 5001) f.loop->Stop();
                        })
              .ok());
  f.Run();
  CHECK(next == 5001);
  CHECK(f.channel->idle());
}

TEST_CASE("MayBeDestroyedInsideACallback") {
  Fixture f;
  f.destroy_on_message = true;
  f.PeerSends(Message(1));
  f.PeerSends(Message(2));
  f.Run();
  CHECK(f.messages.size() == 1);
  CHECK(f.closed == 0);
}

TEST_CASE("TooManyFdsUnderWayDelayAMessage") {
  const int status = RunWithManyFdsUnderWay([](absl::FunctionRef<void()> release) {
    Fixture f;
    std::vector<ScopedFd> passed;
    passed.emplace_back(fcntl(f.peer.fd(), F_DUPFD_CLOEXEC, 0));
    f.channel->Send({ControlType::kOk, 1, Value(Value::Map{})}, std::move(passed));
    if (f.channel->idle()) return 1;
    release();
    if (!f.loop->WatchFd(f.peer.fd(), EPOLLIN, [&f](uint32_t) { f.loop->Stop(); }).ok()) return 2;
    f.Run();
    Packet packet;
    const bool received = f.peer.TryReceive(&packet).value_or(false);
    return received && packet.fds.size() == 1 && f.closed == 0 ? 0 : 3;
  });
  CHECK(status == 0);
}

}  // namespace
}  // namespace monarch
