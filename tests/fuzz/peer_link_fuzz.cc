// What another daemon may send over a session's link: packets that the input splits up, then the end.
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "base/event_loop.h"
#include "base/limits.h"
#include "daemon/peer_link.h"
#include "message/packet_stream.h"

namespace monarch {
namespace {

// Beyond it the socket would have no room for all of it at once.
constexpr size_t kInputMax = 32 * 1024;

// Threading: confined to the loop.
class Sink final : public PeerLink::Events {
 public:
  explicit Sink(EventLoop* loop) : loop_(loop) {}
  absl::Status OnLinkControl(PeerLink&, const ControlMessage& message) override {
    MONARCH_CHECK(message.body.map() != nullptr);
    return absl::OkStatus();
  }
  absl::Status OnLinkFrame(PeerLink&, RelayFrame frame) override {
    const size_t bytes = frame.packet.size() - kFrameHeaderBytes;
    MONARCH_CHECK(frame.payload == nullptr ? bytes == frame.header.payload_length : bytes == 0);
    MONARCH_CHECK((frame.header.flags & kFlagInSegment) == 0);
    return absl::OkStatus();
  }
  void OnLinkLost(PeerLink&, const absl::Status& why) override {
    MONARCH_CHECK(!why.ok());
    loop_->Stop();
  }
  void OnLinkRoom(PeerLink&) override {}

 private:
  EventLoop* const loop_;
};

}  // namespace
}  // namespace monarch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;
  if (size > kInputMax) return 0;
  int fds[2];
  MONARCH_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  MONARCH_CHECK(write(fds[1], data, size) == static_cast<ssize_t>(size));
  close(fds[1]);
  const auto loop = MakeEpollEventLoop();
  MONARCH_CHECK(loop.ok());
  Sink sink(loop->get());
  PeerLink link(loop->get(), std::make_unique<PacketStream>(ScopedFd(fds[0])), absl::Seconds(5), Limits(),
                &sink);
  (*loop)->Run();
  return 0;
}
