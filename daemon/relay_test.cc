#include "daemon/relay.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

const SessionId kSession(Id128{1, 2});
const ProcAddress kSender{HostId(Id128{3, 4}), 7, 1};

FrameHeader Header() {
  FrameHeader header;
  header.kind = FrameKind::kPortMessage;
  header.payload_kind = PayloadKind::kRaw;
  header.session = kSession;
  header.sender = ActorAddress{kSender, 1};
  header.receiver = ActorAddress{ProcAddress{HostId(Id128{3, 4}), 8, 1}, 5};
  header.sequence = 1;
  return header;
}

std::string Encode(FrameHeader header, const std::string& payload, uint64_t said) {
  header.payload_length = said;
  std::string packet(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, absl::MakeSpan(reinterpret_cast<uint8_t*>(packet.data()), packet.size()));
  return packet + payload;
}

}  // namespace

TEST_CASE("AcceptsAFrameOfTheSocketsOwnProcess") {
  const auto header = CheckRelayedFrame(Encode(Header(), "abc", 3), kSession, kSender);
  REQUIRE(header.ok());
  CHECK(header->receiver.proc.proc == 8);
}

TEST_CASE("AcceptsAPayloadInASegment") {
  FrameHeader header = Header();
  header.flags = kFlagInSegment;
  CHECK(CheckRelayedFrame(Encode(header, "", 1 << 30), kSession, kSender).ok());
}

TEST_CASE("RefusesLengthsThatDoNotMatch") {
  CHECK_FALSE(CheckRelayedFrame(Encode(Header(), "abc", 2), kSession, kSender).ok());
  CHECK_FALSE(CheckRelayedFrame(Encode(Header(), "abc", 4), kSession, kSender).ok());
  CHECK_FALSE(CheckRelayedFrame("MNF1", kSession, kSender).ok());
}

TEST_CASE("RefusesToSpeakForOthers") {
  FrameHeader header = Header();
  header.sender.proc.proc = 9;
  CHECK(CheckRelayedFrame(Encode(header, "", 0), kSession, kSender).status().code() ==
        absl::StatusCode::kPermissionDenied);
  header = Header();
  header.session = SessionId(Id128{9, 9});
  CHECK(CheckRelayedFrame(Encode(header, "", 0), kSession, kSender).status().code() ==
        absl::StatusCode::kPermissionDenied);
}

TEST_CASE("UndeliveredCarriesTheHeaderAsSent") {
  const std::string packet = Encode(Header(), "abc", 3);
  const ControlMessage message = UndeliveredMessage(packet, absl::ResourceExhaustedError("full"));
  CHECK(*message.body["header"].AsBytes() == packet.substr(0, kFrameHeaderBytes));
  CHECK(*message.body["code"].AsInt() == static_cast<int>(absl::StatusCode::kResourceExhausted));
}

ProcAddress P(uint64_t proc) { return ProcAddress{HostId(Id128{1, 2}), proc, 1}; }

TEST_CASE("PausesEachSenderOnceAndResumesItWhenHalfIsLeft") {
  RelayPauses pauses(1000);  // relay_pause_bytes
  CHECK_FALSE(pauses.OnFrame(P(7), P(1), 1000));
  CHECK(pauses.OnFrame(P(7), P(1), 1001));
  CHECK_FALSE(pauses.OnFrame(P(7), P(1), 1500));  // told already
  CHECK(pauses.OnFrame(P(7), P(2), 1600));
  CHECK_FALSE(pauses.OnFrame(P(8), P(1), 10));  // another receiver's queue is its own
  CHECK(pauses.OnSent(P(7), 501).empty());
  CHECK(pauses.OnSent(P(7), 500) == std::vector<ProcAddress>{P(1), P(2)});
  CHECK(pauses.OnSent(P(7), 0).empty());
  CHECK(pauses.OnFrame(P(7), P(1), 1001));  // and again
}

TEST_CASE("ResumesAllOfAQueueThatIsShared") {
  RelayPauses pauses(1000);
  REQUIRE(pauses.OnFrame(P(7), P(1), 2000));
  REQUIRE(pauses.OnFrame(P(8), P(1), 2000));
  CHECK(pauses.OnSentToAll(501).empty());
  CHECK(pauses.OnSentToAll(500) ==
        std::vector<std::pair<ProcAddress, ProcAddress>>{{P(7), P(1)}, {P(8), P(1)}});
  CHECK(pauses.OnSentToAll(0).empty());
}

TEST_CASE("ForgetsTheDeadAsReceiverAndAsSender") {
  RelayPauses pauses(1000);
  REQUIRE(pauses.OnFrame(P(7), P(1), 2000));
  REQUIRE(pauses.OnFrame(P(7), P(2), 2000));
  REQUIRE(pauses.OnFrame(P(8), P(1), 2000));
  pauses.Remove(P(1));
  CHECK(pauses.OnSent(P(8), 0).empty());
  pauses.Remove(P(7));
  CHECK(pauses.OnSent(P(7), 0).empty());
}

}  // namespace monarch
