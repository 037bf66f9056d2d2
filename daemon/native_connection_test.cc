#include "daemon/native_connection.h"

#include <linux/capability.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

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
  limits.frame_bytes_max = 64 * 1024;
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

// Ends the process: 0 if the packet with an fd went through once others were read.
[[noreturn]] void SendWhileManyFdsAreUnderWay() {
  // The limit on fds under way is that of open files, for who has no capabilities.
  __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  const rlimit files = {64, 64};
  if (syscall(SYS_capset, &head, none) != 0 || setrlimit(RLIMIT_NOFILE, &files) != 0) _exit(1);
  Fixture f;
  auto unread = *PacketSocket::Pair();
  const std::vector<int> fds(PacketSocket::kPacketFdsMax, f.peer.fd());
  absl::StatusOr<bool> sent = true;
  for (int i = 0; i < 32 && sent.ok(); ++i) sent = unread.first.TrySend("x", fds);
  if (!absl::IsResourceExhausted(sent.status())) _exit(2);
  f.connection->Answer(1, ControlType::kOk, {}, {&fds[0], 1});
  f.connection->Answer(2, ControlType::kOk);
  uint32_t wanted = 1;
  if (!f.loop
           ->WatchFd(f.peer.fd(), EPOLLIN,
                     [&](uint32_t) {
                       Packet packet;
                       while (f.peer.TryReceive(&packet).value_or(false)) {
                         if (DecodeControl(packet.bytes)->request != wanted++) _exit(3);
                       }
                       if (wanted == 3) f.loop->Stop();
                     })
           .ok()) {
    _exit(4);
  }
  // Not before the connection has met the refusal.
  f.loop->RunAfter(absl::Milliseconds(1), [&] { unread.second = PacketSocket(); });
  f.loop->Run();
  _exit(f.recorder.closed.empty() && wanted == 3 ? 0 : 5);
}

TEST_CASE("TooManyFdsUnderWayDelayAReceiverAndDoNotCutItOff") {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) SendWhileManyFdsAreUnderWay();
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("PeerThatDoesNotReadNoticesIsCutOff") {
  NativeConnection::Limits limits;
  limits.control_bytes_max = 4096;
  Fixture f(limits);
  // Far more than a socket's buffer takes.
  for (int i = 0; i < 5000; ++i)
    f.connection->Answer(1, ControlType::kOk, {{"text", Value(std::string(500, 'x'))}});
  f.loop->Run();
  REQUIRE(f.recorder.closed.size() == 1);
  CHECK(absl::IsResourceExhausted(f.recorder.closed[0]));
}

}  // namespace monarch
