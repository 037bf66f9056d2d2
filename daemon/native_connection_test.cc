#include "daemon/native_connection.h"

#include <sys/epoll.h>

#include <catch2/catch.hpp>

#include "message/fds_under_way.h"

namespace monarch {
namespace {

struct Recorder : NativeConnection::Handler {
  absl::Status OnPacket(NativeConnection&, Packet packet) override {
    packets.push_back(packet.bytes);
    if (packet.bytes == "bad") return absl::InvalidArgumentError("garbage");
    if (--stop_after == 0) loop->Stop();
    return absl::OkStatus();
  }
  void OnClosed(NativeConnection&, const absl::Status& why) override {
    closed.push_back(why);
    loop->Stop();
  }
  EventLoop* loop = nullptr;
  int stop_after = -1;
  std::vector<std::string> packets;
  std::vector<absl::Status> closed;
};

struct Fixture {
  explicit Fixture(NativeConnection::Limits limits = {}) {
    loop = *MakeEpollEventLoop();
    recorder.loop = loop.get();
    auto pair = *PacketSocket::Pair();
    peer = std::move(pair.second);
    connection = NativeConnection::Start(loop.get(), std::move(pair.first), &recorder, limits);
  }
  ~Fixture() { connection->Close(); }
  std::unique_ptr<EventLoop> loop;
  Recorder recorder;
  PacketSocket peer;
  std::shared_ptr<NativeConnection> connection;
};

}  // namespace

TEST_CASE("GarbageClosesAndIsToldOnce") {
  Fixture f;
  REQUIRE(*f.peer.TrySend("good"));
  REQUIRE(*f.peer.TrySend("bad"));
  REQUIRE(*f.peer.TrySend("never seen"));
  f.loop->Run();
  CHECK(f.recorder.packets == std::vector<std::string>{"good", "bad"});
  REQUIRE(f.recorder.closed.size() == 1);
  CHECK(absl::IsInvalidArgument(f.recorder.closed[0]));
}

TEST_CASE("EndOfThePeerComesAfterWhatItSent") {
  Fixture f;
  REQUIRE(*f.peer.TrySend("last words"));
  f.peer = PacketSocket();
  f.loop->Run();
  CHECK(f.recorder.packets.size() == 1);
  REQUIRE(f.recorder.closed.size() == 1);
  CHECK(absl::IsUnavailable(f.recorder.closed[0]));
}

TEST_CASE("FramesToASlowReceiverAreBoundedAndKeepTheirOrder") {
  NativeConnection::Limits limits;
  limits.frame_bytes_max = 64 * 1024;  // relay_proc_queue_bytes_max, relay_queue_bytes_max
  Fixture f(limits);
  int accepted = 0;
  absl::Status status;
  while (status.ok() && accepted < 100000) {
    status = f.connection->SendFrame("frame " + std::to_string(accepted) + std::string(1000, '.'));
    if (status.ok()) ++accepted;
  }
  CHECK(absl::IsResourceExhausted(status));
  // Notices still have room of their own.
  f.connection->Answer(7, ControlType::kOk);
  CHECK_FALSE(f.connection->closed());
  // The reader empties the socket from within the loop, which then flushes what is queued.
  int read = 0;
  bool answered = false;
  auto drain = [&](uint32_t) {
    Packet packet;
    while (*f.peer.TryReceive(&packet)) {
      if (packet.bytes.starts_with("frame")) {
        if (packet.bytes.starts_with("frame " + std::to_string(read) + ".")) ++read;
      } else {
        answered = true;
        f.loop->Stop();
      }
    }
  };
  REQUIRE(f.loop->WatchFd(f.peer.fd(), EPOLLIN, drain).ok());
  f.loop->Run();
  CHECK(answered);
  CHECK(read == accepted);
}

TEST_CASE("TooManyFdsUnderWayDelayAReceiverAndDoNotCutItOff") {
  const int status = RunWithManyFdsUnderWay([](absl::FunctionRef<void()> release) {
    Fixture f;
    const int fd = f.peer.fd();
    f.connection->Answer(1, ControlType::kOk, {}, {&fd, 1});
    f.connection->Answer(2, ControlType::kOk);
    uint32_t wanted = 1;
    const absl::Status watched = f.loop->WatchFd(fd, EPOLLIN, [&](uint32_t) {
      Packet packet;
      while (f.peer.TryReceive(&packet).value_or(false)) {
        if (DecodeControl(packet.bytes)->request == wanted) ++wanted;
      }
      if (wanted == 3) f.loop->Stop();
    });
    if (!watched.ok()) return 1;
    // Not before the connection has met the refusal.
    f.loop->RunAfter(absl::Milliseconds(1), [&] { release(); });
    f.loop->RunAfter(absl::Seconds(20), [&] { f.loop->Stop(); });
    f.loop->Run();
    return f.recorder.closed.empty() && wanted == 3 ? 0 : 2;
  });
  CHECK(status == 0);
}

TEST_CASE("PeerThatDoesNotReadNoticesIsCutOff") {
  NativeConnection::Limits limits;
  limits.control_bytes_max = 4096;  // control_queue_bytes_max
  Fixture f(limits);
  // Far more than a socket's buffer takes.
  for (int i = 0; i < 5000; ++i)
    f.connection->Answer(1, ControlType::kOk, {{"text", Value(std::string(500, 'x'))}});
  f.loop->Run();
  REQUIRE(f.recorder.closed.size() == 1);
  CHECK(absl::IsResourceExhausted(f.recorder.closed[0]));
}

}  // namespace monarch
