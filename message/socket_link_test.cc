#include "message/socket_link.h"

#include <sys/eventfd.h>

#include <catch2/catch.hpp>

namespace monarch {
namespace {

struct Ends {
  std::unique_ptr<Link> link;
  PacketSocket peer;
};

Ends MakeEnds() {
  auto pair = PacketSocket::Pair();
  REQUIRE(pair.ok());
  return {MakeSocketLink(std::move(pair->first)), std::move(pair->second)};
}

FrameHeader Header(uint64_t sequence, uint64_t payload_length) {
  FrameHeader header;
  header.kind = FrameKind::kCall;
  header.payload_kind = PayloadKind::kRaw;
  header.sequence = sequence;
  header.payload_length = payload_length;
  return header;
}

std::string Bytes(const FrameHeader& header, std::string_view payload) {
  std::string bytes(kFrameHeaderBytes, 0);
  EncodeFrameHeader(header, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  return bytes.append(payload);
}

absl::Span<const uint8_t> Span(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::vector<uint64_t> Received(Link* link, size_t frames_max = 100) {
  std::vector<uint64_t> sequences;
  auto count = link->Receive(frames_max, [&](Frame frame) { sequences.push_back(frame.header.sequence); });
  REQUIRE(count.ok());
  CHECK(*count == sequences.size());
  return sequences;
}

absl::StatusCode ReceiveCode(Link* link) {
  return link->Receive(100, [](Frame) { FAIL("a frame"); }).status().code();
}

using Numbers = std::vector<uint64_t>;

TEST_CASE("SocketLinkPacketIsHeaderAndPayload") {
  Ends ends = MakeEnds();
  REQUIRE(ends.link->TrySend(Header(1, 3), Span("abc")).ok());
  Packet packet;
  REQUIRE(*ends.peer.TryReceive(&packet));
  CHECK(packet.bytes == Bytes(Header(1, 3), "abc"));
}

TEST_CASE("SocketLinkReceivesAtMostWhatWasAskedFor") {
  Ends ends = MakeEnds();
  for (uint64_t i = 1; i <= 3; ++i) REQUIRE(*ends.peer.TrySend(Bytes(Header(i, 1), "x")));
  CHECK(Received(ends.link.get(), 0).empty());
  CHECK(Received(ends.link.get(), 2) == Numbers{1, 2});
  CHECK(Received(ends.link.get()) == Numbers{3});
  CHECK(Received(ends.link.get()).empty());
}

TEST_CASE("SocketLinkPayloadInSegmentHasNoBytesBehindTheHeader") {
  Ends ends = MakeEnds();
  FrameHeader header = Header(1, 1 << 30);
  header.flags = kFlagInSegment;
  header.segment_offset = 4096;
  REQUIRE(ends.link->TrySend(header, {}).ok());
  CHECK(ends.link->TrySend(header, Span("x")).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(*ends.peer.TrySend(Bytes(header, "")));
  auto count = ends.link->Receive(1, [](Frame frame) {
    CHECK(frame.header.payload_length == 1 << 30);
    CHECK(frame.payload.empty());
  });
  CHECK(*count == 1);
}

TEST_CASE("SocketLinkRefusesTooLargeAndStaysUsable") {
  Ends ends = MakeEnds();
  const size_t max = ends.link->payload_bytes_max();
  CHECK(max + kFrameHeaderBytes == PacketSocket::kPacketBytesMax);
  const std::string payload(max + 1, 'x');
  CHECK(ends.link->TrySend(Header(1, max + 1), Span(payload)).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(ends.link->TrySend(Header(1, 2), Span("x")).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(*ends.link->TrySend(Header(1, max), Span(payload).subspan(1)) == SendResult::kSent);
}

TEST_CASE("SocketLinkFullThenRoom") {
  Ends ends = MakeEnds();
  const std::string payload(16'000, 'x');
  CHECK_FALSE(ends.link->RequestRoomSignal(0));
  while (*ends.link->TrySend(Header(1, payload.size()), Span(payload)) == SendResult::kSent) {
  }
  CHECK(ends.link->RequestRoomSignal(0));
  Packet packet;
  while (*ends.peer.TryReceive(&packet)) {
  }
  CHECK_FALSE(ends.link->RequestRoomSignal(0));
  CHECK(*ends.link->TrySend(Header(1, 1), Span("x")) == SendResult::kSent);
}

TEST_CASE("SocketLinkClosedPeersFramesComeFirst") {
  Ends ends = MakeEnds();
  REQUIRE(*ends.peer.TrySend(Bytes(Header(1, 1), "x")));
  ends.peer = PacketSocket();
  CHECK(Received(ends.link.get()) == Numbers{1});
  CHECK(ReceiveCode(ends.link.get()) == absl::StatusCode::kUnavailable);
  CHECK(ReceiveCode(ends.link.get()) == absl::StatusCode::kUnavailable);
  CHECK(ends.link->TrySend(Header(1, 0), {}).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("SocketLinkDeadPeersFramesComeBeforeTheReason") {
  const bool closed = GENERATE(false, true);  // a child of the dead may hold the other end open
  Ends ends = MakeEnds();
  REQUIRE(*ends.peer.TrySend(Bytes(Header(1, 1), "x")));
  if (closed) ends.peer = PacketSocket();
  ends.link->PeerDied(absl::UnavailableError("killed by signal 9"));
  ends.link->PeerDied(absl::UnavailableError("a later reason"));
  CHECK(ends.link->TrySend(Header(1, 0), {}).status().message() == "killed by signal 9");
  CHECK(Received(ends.link.get()) == Numbers{1});
  for (int i = 0; i < 2; ++i) {
    const auto end = ends.link->Receive(1, [](Frame) {});
    CHECK(end.status().message() == "killed by signal 9");
  }
}

TEST_CASE("SocketLinkGarbageIsFinal") {
  const std::string good = Bytes(Header(1, 3), "abc");
  std::string corrupt = good;
  corrupt[100] ^= 1;
  const std::string cases[] = {"MNC1", good.substr(0, 100), good.substr(0, good.size() - 1), good + "d",
                               corrupt};
  for (const std::string& garbage : cases) {
    Ends ends = MakeEnds();
    REQUIRE(*ends.peer.TrySend(good));
    REQUIRE(*ends.peer.TrySend(garbage));
    REQUIRE(*ends.peer.TrySend(good));
    CHECK(Received(ends.link.get()) == Numbers{1});
    CHECK(ReceiveCode(ends.link.get()) == absl::StatusCode::kInvalidArgument);
    CHECK(ReceiveCode(ends.link.get()) == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("SocketLinkRefusesFramesWithFds") {
  Ends ends = MakeEnds();
  const ScopedFd event(eventfd(0, EFD_CLOEXEC));
  REQUIRE(*ends.peer.TrySend(Bytes(Header(1, 0), ""), {event.get()}));
  CHECK(ReceiveCode(ends.link.get()) == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace monarch
