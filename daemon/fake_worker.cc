// A worker for the daemon's tests, in the smallest form that WIRE.md allows; and a client process to be
// killed. The boot bytes say what it does:
//   ready    says hello and ready, sends back every frame it gets, leaves with 0 when told to stop
//   stubborn like ready, but ignores stop and TERM
//   orphan   like ready, with a grandchild in a session of its own that outlives it
//   silent   connects to nothing
//   mute     says hello, never ready
//   exit     writes a line to stderr and leaves with 3
//   garbage  like ready, then sends nonsense
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/version.h"
#include "message/control_message.h"
#include "message/doorbell.h"
#include "message/frame.h"
#include "message/large_body.h"
#include "message/lifeline.h"
#include "message/memfd.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

constexpr int kDaemonFd = 3;
constexpr int kLauncherFd = 4;
constexpr int kWaitMs = 20000;

bool Receive(PacketSocket& socket, Packet* packet, int timeout_ms) {
  for (;;) {
    const auto got = socket.TryReceive(packet);
    if (!got.ok()) return false;
    if (*got) return true;
    if (!WaitReadable(socket.fd(), timeout_ms).ok()) return false;
  }
}

void Send(PacketSocket& socket, const ControlMessage& message, absl::Span<const int> fds = {}) {
  MONARCH_CHECK(*socket.TrySend(*EncodeControl(message), fds));
}

void EchoFrame(PacketSocket& socket, const Packet& packet) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(packet.bytes.data());
  auto header = DecodeFrameHeader(absl::MakeConstSpan(bytes, packet.bytes.size()), 1 << 20);
  MONARCH_CHECK(header.ok());
  std::swap(header->sender, header->receiver);
  std::string answer = packet.bytes;
  EncodeFrameHeader(*header, absl::MakeSpan(reinterpret_cast<uint8_t*>(answer.data()), kFrameHeaderBytes));
  MONARCH_CHECK(*socket.TrySend(answer));
}

int Serve(PacketSocket& daemon, const std::string& what) {
  for (;;) {
    Packet packet;
    if (!Receive(daemon, &packet, -1)) {
      if (what != "garbage") return 0;
      pause();
    }
    if (IsFramePacket(packet.bytes)) {
      EchoFrame(daemon, packet);
      continue;
    }
    const auto message = DecodeControl(packet.bytes);
    MONARCH_CHECK(message.ok());
    if (message->type == ControlType::kStop && what != "stubborn") return 0;
  }
}

int RunWorker() {
  PacketSocket daemon{ScopedFd(kDaemonFd)};
  PacketSocket launcher{ScopedFd(kLauncherFd)};
  Packet packet;
  MONARCH_CHECK(Receive(launcher, &packet, kWaitMs));
  auto boot = DecodeControl(packet.bytes);
  MONARCH_CHECK(boot.ok() && MoveLargeBodyIn(&*boot, &packet.fds).ok());
  MONARCH_CHECK(boot.ok() && boot->type == ControlType::kBoot);
  const std::string what = *boot->body["boot"].AsBytes();
  if (what == "silent") pause();
  if (what == "exit") {
    std::fprintf(stderr, "worker cannot go on\n");
    return 3;
  }
  if (what == "stubborn") signal(SIGTERM, SIG_IGN);
  if (what == "orphan" && fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    for (;;) pause();
  }
  auto doorbell = Doorbell::Create();
  MONARCH_CHECK(doorbell.ok());
  MONARCH_CHECK(HoldLifeline(doorbell->lifeline_page()).ok());
  Send(launcher, ControlMessage{ControlType::kLifeline, 1, Value::Map{}}, {doorbell->memfd()});
  auto segment = CreateSealedMemfd("test-segment", 1 << 20);
  MONARCH_CHECK(segment.ok());
  Send(daemon,
       ControlMessage{ControlType::kHello, 1,
                      Value::Map{{"protocol", Value(1)},
                                 {"version", Value(kVersion)},
                                 {"role", Value("worker")},
                                 {"pid", Value(int64_t{getpid()})},
                                 {"token", boot->body["token"]}}},
       {doorbell->memfd(), doorbell->bell(), segment->get()});
  MONARCH_CHECK(Receive(daemon, &packet, kWaitMs));
  const auto welcome = DecodeControl(packet.bytes);
  MONARCH_CHECK(welcome.ok() && welcome->type == ControlType::kWelcome);
  if (what == "mute") pause();
  Send(daemon, ControlMessage{ControlType::kReady, 0, Value::Map{}});
  if (what == "garbage") MONARCH_CHECK(*daemon.TrySend("nonsense"));
  return Serve(daemon, what);
}

// Makes the socket pair whose credentials name this process, hands both ends over fd 3, and waits to be
// killed.
int RunClientProcess() {
  auto pair = PacketSocket::Pair();
  MONARCH_CHECK(pair.ok());
  PacketSocket parent{ScopedFd(3)};
  MONARCH_CHECK(*parent.TrySend("pair", {pair->first.fd(), pair->second.fd()}));
  pair->first = PacketSocket();
  pair->second = PacketSocket();
  return WaitReadable(parent.fd(), -1).ok() ? 0 : 1;
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--client") == 0) return monarch::RunClientProcess();
  return monarch::RunWorker();
}
