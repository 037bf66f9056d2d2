#include "message/link_conformance.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "message/frame.h"

namespace monarch {
namespace {

absl::Span<const uint8_t> Span(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

FrameHeader Header(uint64_t sequence, uint64_t payload_length) {
  FrameHeader header;
  header.kind = FrameKind::kCall;
  header.payload_kind = PayloadKind::kRaw;
  header.sequence = sequence;
  header.payload_length = payload_length;
  return header;
}

std::string Encoded(const FrameHeader& header) {
  std::string bytes(kFrameHeaderBytes, 0);
  EncodeFrameHeader(header, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  return bytes;
}

// A payload that tells which frame it belongs to.
std::string Payload(uint64_t sequence, size_t bytes) {
  return std::string(bytes, static_cast<char>(sequence % 251));
}

SendResult Send(Link& link, uint64_t sequence, size_t bytes) {
  const auto sent = link.TrySend(Header(sequence, bytes), Span(Payload(sequence, bytes)));
  REQUIRE(sent.ok());
  return *sent;
}

std::vector<Frame> Receive(Link& link, size_t frames_max = 1'000'000) {
  std::vector<Frame> frames;
  const auto count = link.Receive(frames_max, [&](Frame frame) { frames.push_back(std::move(frame)); });
  REQUIRE(count.ok());
  CHECK(*count == frames.size());
  return frames;
}

std::vector<uint64_t> ReceiveSequences(Link& link, size_t frames_max = 1'000'000) {
  std::vector<uint64_t> sequences;
  for (const Frame& frame : Receive(link, frames_max)) sequences.push_back(frame.header.sequence);
  return sequences;
}

absl::Status ReceiveError(Link& link) {
  return link.Receive(10, [](Frame) { FAIL("a frame came"); }).status();
}

using Sequences = std::vector<uint64_t>;

void DeliversInOrderBothWays(LinkRig& rig) {
  for (uint64_t i = 1; i <= 3; ++i) {
    CHECK(Send(rig.left(), i, i) == SendResult::kSent);
    CHECK(Send(rig.right(), 10 + i, i) == SendResult::kSent);
  }
  CHECK(ReceiveSequences(rig.right()) == Sequences{1, 2, 3});
  CHECK(ReceiveSequences(rig.left()) == Sequences{11, 12, 13});
  CHECK(Receive(rig.left()).empty());
}

void KeepsEveryFieldOfTheHeader(LinkRig& rig) {
  FrameHeader header = Header(1, 5);
  header.kind = FrameKind::kException;
  header.payload_kind = PayloadKind::kPickle;
  header.flags = kFlagUrgent | kFlagReply;
  header.session = SessionId::Random();
  header.sender = {{HostId::Random(), 2, 3}, 4};
  header.receiver = {{HostId::Random(), 5, 6}, 7};
  header.call_id = 8;
  header.port_id = 9;
  header.reply_word = 10;
  header.rank = 11;
  header.deadline_ns = 12;
  header.chain_id = 13;
  header.trace_id = 14;
  header.segment_offset = 15;
  REQUIRE(rig.left().TrySend(header, Span("hello")).ok());
  const auto frames = Receive(rig.right());
  REQUIRE(frames.size() == 1);
  CHECK(Encoded(frames[0].header) == Encoded(header));
  CHECK(frames[0].payload == "hello");
}

void ReceivesAtMostWhatIsAskedFor(LinkRig& rig) {
  for (uint64_t i = 1; i <= 3; ++i) Send(rig.left(), i, 0);
  CHECK(ReceiveSequences(rig.right(), 0).empty());
  CHECK(ReceiveSequences(rig.right(), 2) == Sequences{1, 2});
  CHECK(ReceiveSequences(rig.right(), 2) == Sequences{3});
}

void TakesPayloadsUpToItsLimit(LinkRig& rig) {
  const size_t max = rig.left().payload_bytes_max();
  REQUIRE(max >= 4096);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, max}) {
    CHECK(Send(rig.left(), 1, bytes) == SendResult::kSent);
    const auto frames = Receive(rig.right());
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].payload == Payload(1, bytes));
  }
  const std::string large(max + 1, 'x');
  CHECK(rig.left().TrySend(Header(1, max + 1), Span(large)).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(rig.left().TrySend(Header(1, 4), Span("abc")).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(rig.left().TrySend(Header(1, 2), Span("abc")).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Send(rig.left(), 2, 1) == SendResult::kSent);
  CHECK(ReceiveSequences(rig.right()) == Sequences{2});
}

void CarriesNoBytesOfPayloadsInSegments(LinkRig& rig) {
  FrameHeader header = Header(1, uint64_t{1} << 33);
  header.flags = kFlagInSegment;
  header.segment_offset = uint64_t{1} << 32;
  CHECK(rig.left().TrySend(header, Span("x")).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(rig.left().TrySend(header, {}).ok());
  const auto frames = Receive(rig.right());
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].header.payload_length == uint64_t{1} << 33);
  CHECK(frames[0].header.segment_offset == uint64_t{1} << 32);
  CHECK(frames[0].payload.empty());
}

void FullLinkSendsNothingUntilThereIsRoom(LinkRig& rig) {
  CHECK_FALSE(rig.left().RequestRoomSignal(1));
  uint64_t sent = 0;
  while (Send(rig.left(), sent + 1, 1000) == SendResult::kSent) ++sent;
  REQUIRE(sent > 0);
  CHECK(Send(rig.left(), sent + 1, 1000) == SendResult::kFull);
  CHECK(rig.left().RequestRoomSignal(1));
  const auto sequences = ReceiveSequences(rig.right());
  CHECK(sequences.size() == sent);
  CHECK(sequences.back() == sent);
  CHECK(rig.AwaitRoom());
  CHECK(Send(rig.left(), sent + 1, 1000) == SendResult::kSent);
  CHECK(ReceiveSequences(rig.right()) == Sequences{sent + 1});
}

void StreamsThroughAFullLink(LinkRig& rig) {
  constexpr uint64_t kFrames = 5000;
  const auto bytes_of = [](uint64_t sequence) { return sequence * 37 % (sequence % 50 == 0 ? 7000 : 400); };
  std::atomic<bool> sender_ok{true};
  std::thread sender([&] {
    for (uint64_t i = 1; i <= kFrames && sender_ok;) {
      const std::string payload = Payload(i, bytes_of(i));
      const auto sent = rig.left().TrySend(Header(i, payload.size()), Span(payload));
      if (sent.ok() && *sent == SendResult::kSent) {
        ++i;
      } else {
        sender_ok = sent.ok() && rig.AwaitRoom();
      }
    }
  });
  uint64_t next = 1;
  bool intact = true;
  while (next <= kFrames && intact) {
    intact = rig.AwaitFrames();
    size_t received = 1;
    while (received != 0 && intact) {
      const auto count = rig.right().Receive(7, [&](Frame frame) {
        intact = intact && frame.header.sequence == next && frame.payload == Payload(next, bytes_of(next));
        ++next;
      });
      intact = intact && count.ok();
      received = count.value_or(0);
    }
  }
  if (!intact) rig.left().PeerDied(absl::AbortedError("the test has failed"));
  sender.join();
  CHECK(intact);
  CHECK(sender_ok);
}

void DeadPeersFramesComeBeforeTheReason(LinkRig& rig) {
  Send(rig.left(), 1, 10);
  Send(rig.left(), 2, 4000);
  rig.right().PeerDied(absl::UnavailableError("killed by signal 9"));
  rig.right().PeerDied(absl::AbortedError("a later reason"));
  CHECK(rig.right().TrySend(Header(1, 0), {}).status() == absl::UnavailableError("killed by signal 9"));
  CHECK(ReceiveSequences(rig.right(), 1) == Sequences{1});
  CHECK(ReceiveSequences(rig.right(), 5) == Sequences{2});
  for (int i = 0; i < 2; ++i)
    CHECK(ReceiveError(rig.right()) == absl::UnavailableError("killed by signal 9"));
}

void DeathMayComeWhileReceiving(LinkRig& rig) {
  constexpr uint64_t kFrames = 10;
  std::thread death([&] {
    for (uint64_t i = 1; i <= kFrames; ++i) {
      if (!rig.left().TrySend(Header(i, 0), {}).ok()) std::abort();
    }
    rig.right().PeerDied(absl::UnavailableError("gone"));
  });
  uint64_t received = 0;
  absl::Status end;
  while (end.ok()) {
    const auto count = rig.right().Receive(3, [&](Frame frame) { received = frame.header.sequence; });
    end = count.status();
  }
  death.join();
  CHECK(end == absl::UnavailableError("gone"));
  CHECK(received == kFrames);
}

void GarbageIsFinalAfterTheFramesBeforeIt(LinkRig& rig, const std::string& garbage) {
  rig.Inject(Encoded(Header(1, 3)) + "abc");
  rig.Inject(garbage);
  rig.Inject(Encoded(Header(2, 3)) + "abc");
  CHECK(ReceiveSequences(rig.right()) == Sequences{1});
  const absl::Status error = ReceiveError(rig.right());
  CHECK((error.code() == absl::StatusCode::kInvalidArgument || error.code() == absl::StatusCode::kDataLoss));
  CHECK(ReceiveError(rig.right()) == error);
}

std::vector<std::pair<std::string, std::string>> Garbage() {
  std::string corrupt = Encoded(Header(1, 0));
  corrupt[112] ^= 1;
  FrameHeader segment = Header(1, 100);
  segment.flags = kFlagInSegment;
  return {{"one byte", "M"},
          {"half a header", Encoded(Header(1, 0)).substr(0, 100)},
          {"wrong checksum", corrupt},
          {"payload too short", Encoded(Header(1, 3)) + "ab"},
          {"payload too long", Encoded(Header(1, 3)) + "abcd"},
          {"payload of 2^64 - 1", Encoded(Header(1, ~uint64_t{0}))},
          {"bytes with a payload in a segment", Encoded(segment) + std::string(100, 'x')},
          {"zeros", std::string(kFrameHeaderBytes, '\0')}};
}

}  // namespace

void CheckLinkConformance(const std::function<std::unique_ptr<LinkRig>()>& make_rig) {
  const std::pair<const char*, void (*)(LinkRig&)> properties[] = {
      {"delivers in order both ways", DeliversInOrderBothWays},
      {"keeps every field of the header", KeepsEveryFieldOfTheHeader},
      {"receives at most what is asked for", ReceivesAtMostWhatIsAskedFor},
      {"takes payloads up to its limit", TakesPayloadsUpToItsLimit},
      {"carries no bytes of payloads in segments", CarriesNoBytesOfPayloadsInSegments},
      {"full link sends nothing until there is room", FullLinkSendsNothingUntilThereIsRoom},
      {"streams through a full link", StreamsThroughAFullLink},
      {"dead peer's frames come before the reason", DeadPeersFramesComeBeforeTheReason},
      {"death may come while receiving", DeathMayComeWhileReceiving},
  };
  for (const auto& [name, check] : properties) {
    DYNAMIC_SECTION(name) { check(*make_rig()); }
  }
  for (const auto& [name, garbage] : Garbage()) {
    DYNAMIC_SECTION("garbage is final: " << name) {
      GarbageIsFinalAfterTheFramesBeforeIt(*make_rig(), garbage);
    }
  }
}

}  // namespace monarch
