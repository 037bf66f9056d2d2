#include "daemon/peer_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "message/memfd.h"
#include "message/packet_stream.h"

namespace monarch {
namespace {

ProcAddress Proc(uint64_t number) { return ProcAddress{HostId(Id128{1, number}), number, 1}; }

// Threading: confined to the loop.
class Recorder final : public PeerLink::Events {
 public:
  absl::Status OnLinkControl(PeerLink&, const ControlMessage& message) override {
    seen.push_back("control " + std::to_string(static_cast<int>(message.type)));
    return Seen();
  }
  absl::Status OnLinkFrame(PeerLink&, RelayFrame frame) override {
    std::string payload = frame.packet.substr(kFrameHeaderBytes);
    if (frame.payload) {
      payload.resize(frame.header.payload_length);
      CHECK(pread(frame.payload->get(), payload.data(), payload.size(), 0) ==
            static_cast<ssize_t>(payload.size()));
    }
    payloads.push_back(payload);
    seen.push_back("frame " + std::to_string(frame.header.sequence));
    return Seen();
  }
  void OnLinkLost(PeerLink&, const absl::Status& why) override {
    lost = why;
    loop->Stop();
  }
  void OnLinkRoom(PeerLink&) override {}
  absl::Status Seen() {
    if (seen.size() == wanted) loop->Stop();
    return absl::OkStatus();
  }

  EventLoop* loop = nullptr;
  size_t wanted = 0;
  std::vector<std::string> seen;
  std::vector<std::string> payloads;
  absl::Status lost;
};

struct Links {
  explicit Links(absl::Duration silence_max = absl::Seconds(20)) : loop(*MakeEpollEventLoop()) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    left.loop = right.loop = loop.get();
    other = ScopedFd(fds[1]);
    from = std::make_unique<PeerLink>(loop.get(), std::make_unique<PacketStream>(ScopedFd(fds[0])),
                                      silence_max, Limits(), &left);
  }
  void Connect() {
    to = std::make_unique<PeerLink>(loop.get(), std::make_unique<PacketStream>(std::move(other)),
                                    absl::Seconds(20), Limits(), &right);
  }
  std::unique_ptr<EventLoop> loop;
  Recorder left;
  Recorder right;
  ScopedFd other;
  std::unique_ptr<PeerLink> from;
  std::unique_ptr<PeerLink> to;
};

RelayFrame Frame(uint64_t sender, uint64_t receiver, uint64_t sequence, const std::string& payload,
                 bool bulk) {
  RelayFrame frame;
  frame.header.kind = FrameKind::kPortMessage;
  frame.header.payload_kind = PayloadKind::kRaw;
  frame.header.session = SessionId(Id128{3, 4});
  frame.header.sender = ActorAddress{Proc(sender), 1};
  frame.header.receiver = ActorAddress{Proc(receiver), 1};
  frame.header.sequence = sequence;
  frame.header.port_id = 1;
  frame.header.payload_length = payload.size();
  frame.packet.resize(kFrameHeaderBytes);
  EncodeFrameHeader(frame.header,
                    absl::MakeSpan(reinterpret_cast<uint8_t*>(frame.packet.data()), kFrameHeaderBytes));
  if (!bulk) {
    frame.packet += payload;
    return frame;
  }
  frame.offset = 64;
  frame.payload = std::make_shared<ScopedFd>(*CreateSealedMemfd("payload", payload.size() + 64));
  REQUIRE(pwrite(frame.payload->get(), payload.data(), payload.size(), 64) ==
          static_cast<ssize_t>(payload.size()));
  return frame;
}

std::string Pattern(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 + i / 251);
  return out;
}

}  // namespace

TEST_CASE("APairKeepsItsOrderAndOthersPassItsLargePayload") {
  Links links;
  const std::string large = Pattern(3 << 20);
  int sent = 0;
  RelayFrame first = Frame(1, 2, 1, large, true);
  first.sent = [&] { ++sent; };
  REQUIRE(links.from->SendFrame(first).ok());
  RelayFrame second = Frame(1, 2, 2, "behind", false);
  RelayFrame other = Frame(5, 2, 3, "passes", false);
  REQUIRE(links.from->SendFrame(second).ok());
  REQUIRE(links.from->SendFrame(other).ok());
  links.from->SendBehind(Proc(1), {ControlType::kProcDead, 0, Value::Map{}});
  links.from->SendBehind(Proc(5), {ControlType::kProcDetail, 0, Value::Map{}});
  CHECK(links.from->waiting_bytes() > (2u << 20));
  links.right.wanted = 5;
  links.Connect();
  links.loop->Run();
  // A message about the dead comes behind what it sent, and no later than that.
  CHECK(links.right.seen ==
        std::vector<std::string>{"frame 3", "control 12", "frame 1", "frame 2", "control 11"});
  CHECK(links.right.payloads == std::vector<std::string>{"passes", large, "behind"});
  CHECK(sent == 1);
}

TEST_CASE("TheEndOfTheOtherSideIsTold") {
  Links links;
  links.other.reset();
  links.loop->Run();
  CHECK(absl::IsUnavailable(links.left.lost));
  RelayFrame frame = Frame(1, 2, 1, "x", false);
  CHECK(absl::IsUnavailable(links.from->SendFrame(frame)));
}

TEST_CASE("SilenceIsTheEnd") {
  Links links(absl::Milliseconds(50));
  links.loop->Run();
  CHECK(std::string(links.left.lost.message()).find("silent") != std::string::npos);
}

}  // namespace monarch
