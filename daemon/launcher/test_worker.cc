// A worker for launcher_test: does what a real one does at its start, then what its first argument says.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/scoped_fd.h"
#include "message/control_message.h"
#include "message/doorbell.h"
#include "message/large_body.h"
#include "message/lifeline.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

constexpr int kDaemonSocketFd = 3;
constexpr int kLauncherSocketFd = 4;

[[noreturn]] void Fail(const char* what) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, what, std::string(what).size());
  _exit(99);
}

ControlMessage Receive(PacketSocket& socket) {
  Packet packet;
  if (!WaitReadable(socket.fd(), 20'000).ok() || !socket.TryReceive(&packet).value_or(false))
    Fail("no message\n");
  absl::StatusOr<ControlMessage> message = DecodeControl(packet.bytes);
  if (!message.ok() || !MoveLargeBodyIn(&*message, &packet.fds).ok()) Fail("bad message\n");
  return *std::move(message);
}

void Say(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) Fail("no stdout\n");
}

[[noreturn]] void Run(const std::string& what) {
  PacketSocket launcher{ScopedFd(kLauncherSocketFd)};
  const ControlMessage boot = Receive(launcher);
  if (boot.type != ControlType::kBoot) Fail("no boot\n");
  absl::StatusOr<Doorbell> doorbell = Doorbell::Create();
  if (!doorbell.ok() || !HoldLifeline(doorbell->lifeline_page()).ok()) Fail("no life-line\n");
  const int fds[] = {doorbell->memfd()};
  if (!launcher.TrySend(*EncodeControl({ControlType::kLifeline, 7, Value(Value::Map{})}), fds)
           .value_or(false)) {
    Fail("cannot send\n");
  }
  const ControlMessage answer = Receive(launcher);
  if (answer.type != ControlType::kOk || answer.request != 7) Fail("life-line refused\n");
  if (what == "boot-size") {
    Say("bytes " + std::to_string(boot.body["boot"].AsBytes().value_or("").size()) + "\n");
    _exit(0);
  }
  Say("ready boot=" + boot.body["boot"].AsBytes().value_or("?") +
      " token=" + boot.body["token"].AsBytes().value_or("?") + "\n");
  if (what == "exit") {
    // When the daemon's side says so.
    _exit(WaitReadable(kDaemonSocketFd, 20'000).ok() ? 5 : 98);
  }
  if (what == "garbage") {
    [[maybe_unused]] const absl::StatusOr<bool> sent = launcher.TrySend("garbage");
  }
  if (what == "stubborn") {
    signal(SIGTERM, SIG_IGN);
    Say("deaf\n");
  }
  if (what == "polite") {
    const ControlMessage stop = Receive(launcher);
    if (stop.type != ControlType::kStop || !stop.body["session_ends"].AsBool().value_or(false))
      Fail("no stop\n");
    Say("asked: " + stop.body["reason"].AsString().value_or("?") + ", " +
        std::to_string(stop.body["grace_ms"].AsInt().value_or(0)) + " ms\n");
    _exit(0);
  }
  for (;;) pause();
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) { monarch::Run(argc > 1 ? argv[1] : "wait"); }
