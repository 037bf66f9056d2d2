#include "daemon/launcher/daemon_door.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "message/control_message.h"

namespace monarch {
namespace {

struct Fixture {
  Fixture() {
    char name[] = "/tmp/mrdXXXXXX";
    directory = mkdtemp(name);
    path = directory + "/door";
    auto made = MakeEpollEventLoop();
    REQUIRE(made.ok());
    loop = *std::move(made);
    auto opened = DaemonDoor::Open(loop.get(), path, token, [this](PacketSocket socket) {
      arrived.push_back(std::move(socket));
      loop->Stop();
    });
    REQUIRE(opened.ok());
    door = *std::move(opened);
  }
  ~Fixture() {
    door.reset();
    std::filesystem::remove_all(directory);
  }
  PacketSocket Knock(const std::string& packet) {
    auto socket = PacketSocket::Connect(path);
    REQUIRE(socket.ok());
    REQUIRE(socket->TrySend(packet).value());
    return *std::move(socket);
  }
  static ControlMessage Resume(const StartToken& token) {
    return {ControlType::kResume, 0, Value::Map{{"token", ToValue(token)}}};
  }
  void Run() {
    loop->RunAfter(absl::Seconds(20), [this] { loop->Stop(); });
    loop->Run();
  }

  std::string directory;
  std::string path;
  StartToken token = StartToken::Random();
  std::unique_ptr<EventLoop> loop;
  std::vector<PacketSocket> arrived;
  std::unique_ptr<DaemonDoor> door;
};

TEST_CASE_METHOD(Fixture, "who names the token comes in, and talks on over that socket") {
  PacketSocket daemon = Knock(*EncodeControl(Resume(token)));
  Run();
  REQUIRE(arrived.size() == 1);
  REQUIRE(arrived[0].TrySend("hello").value());
  Packet packet;
  REQUIRE(daemon.TryReceive(&packet).value());
  CHECK(packet.bytes == "hello");
}

TEST_CASE_METHOD(Fixture, "who does not know the token is turned away, and the next may come") {
  const std::string packet = GENERATE_COPY(*EncodeControl(Resume(StartToken::Random())),
                                           *EncodeControl({ControlType::kHello, 0, Resume(token).body}),
                                           std::string("\x01 no message"));
  PacketSocket wrong = Knock(packet);
  PacketSocket daemon;
  const absl::Status watched = loop->WatchFd(wrong.fd(), EPOLLIN, [&](uint32_t) {
    loop->Unwatch(wrong.fd());
    Packet none;
    CHECK(absl::IsUnavailable(wrong.TryReceive(&none).status()));
    CHECK(arrived.empty());
    daemon = Knock(*EncodeControl(Resume(token)));
  });
  REQUIRE(watched.ok());
  Run();
  CHECK(arrived.size() == 1);
}

TEST_CASE_METHOD(Fixture, "one who says nothing does not keep the next from coming") {
  auto silent = PacketSocket::Connect(path);
  REQUIRE(silent.ok());
  PacketSocket daemon = Knock(*EncodeControl(Resume(token)));
  Run();
  CHECK(arrived.size() == 1);
}

TEST_CASE_METHOD(Fixture, "a closed door leaves no file") {
  CHECK(access(path.c_str(), F_OK) == 0);
  door.reset();
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE_METHOD(Fixture, "a path that is taken, or too long, is refused") {
  const auto opened = [&](const std::string& where) {
    return DaemonDoor::Open(loop.get(), where, token, [](PacketSocket) {}).status();
  };
  CHECK_FALSE(opened(path).ok());
  CHECK_FALSE(opened(directory + "/" + std::string(200, 'x')).ok());
}

}  // namespace
}  // namespace monarch
