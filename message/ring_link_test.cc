#include "message/ring_link.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "message/memfd.h"
#include "message/ring.h"

namespace monarch {
namespace {

constexpr uint32_t kWord = 9;
constexpr uint32_t kBitOfLeft = 70;   // set in right's doorbell
constexpr uint32_t kBitOfRight = 71;  // set in left's doorbell

ScopedFd Dup(int fd) { return ScopedFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

std::shared_ptr<Doorbell> MakeDoorbell() {
  auto doorbell = Doorbell::Create();
  REQUIRE(doorbell.ok());
  return std::make_shared<Doorbell>(*std::move(doorbell));
}

struct Rig {
  ScopedFd memfd;
  Mapping memory;
  std::shared_ptr<Doorbell> left_doorbell = MakeDoorbell();
  std::shared_ptr<Doorbell> right_doorbell = MakeDoorbell();
  std::unique_ptr<RingLink> left;
  std::unique_ptr<RingLink> right;

  Rig() {
    auto created = CreateSealedMemfd("test-ring", kRingMemfdBytes);
    REQUIRE(created.ok());
    memfd = *std::move(created);
    auto mapping = Mapping::Map(memfd.get(), kRingMemfdBytes);
    REQUIRE(mapping.ok());
    memory = *std::move(mapping);
    left = Make(0, right_doorbell, kBitOfLeft);
    right = Make(1, left_doorbell, kBitOfRight);
  }
  std::unique_ptr<RingLink> Make(int side, std::shared_ptr<Doorbell> peer, uint32_t bit) const {
    auto link = RingLink::Create(Dup(memfd.get()), std::move(peer), {side, bit});
    REQUIRE(link.ok());
    return *std::move(link);
  }
};

FrameHeader Header(FrameKind kind, uint64_t payload_length = 0) {
  FrameHeader header;
  header.kind = kind;
  header.payload_kind = payload_length == 0 ? PayloadKind::kNone : PayloadKind::kRaw;
  header.payload_length = payload_length;
  return header;
}

SendResult Send(RingLink* link, const FrameHeader& header, uint32_t word) {
  const std::string payload(header.payload_length, 'x');
  const auto sent = link->TrySendAndRing(
      header, {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}, [&] { return word; });
  REQUIRE(sent.ok());
  return *sent;
}

size_t Receive(RingLink* link, size_t frames_max = 1000) {
  const auto count = link->Receive(frames_max, [](Frame) {});
  REQUIRE(count.ok());
  return *count;
}

bool TakeBell(const std::shared_ptr<Doorbell>& doorbell) {
  pollfd entry = {doorbell->bell(), POLLIN, 0};
  const bool rung = poll(&entry, 1, 0) == 1;
  doorbell->ClearBell();
  return rung;
}

std::vector<uint64_t> News(const std::shared_ptr<Doorbell>& doorbell) {
  std::vector<uint64_t> news(kRingBits / 64);
  doorbell->TakeNews(news.data());
  return news;
}

struct Cost {
  uint64_t wakes_before = doorbell_counts().futex_wakes;
  uint64_t bells_before = doorbell_counts().bell_writes;
  uint64_t wakes() const { return doorbell_counts().futex_wakes - wakes_before; }
  uint64_t bells() const { return doorbell_counts().bell_writes - bells_before; }
};

TEST_CASE("SendToARunningWordCostsNoSystemCall") {
  Rig rig;
  const Cost cost;
  Send(rig.left.get(), Header(FrameKind::kCall), kWord);
  CHECK(cost.wakes() + cost.bells() == 0);
  CHECK(News(rig.right_doorbell) == std::vector<uint64_t>{0, uint64_t{1} << 6, 0, 0});
  CHECK(Receive(rig.right.get()) == 1);
  CHECK(cost.wakes() + cost.bells() == 0);
}

// As when a pool of threads gets another leader just while a frame is sent.
TEST_CASE("TheWordIsLookedUpOnceTheFrameCanBeSeen") {
  Rig rig;
  rig.right_doorbell->SetDefaultWord(kWord);
  bool visible = false;
  const auto word = [&] {
    visible = rig.right_doorbell->HasNews() && Receive(rig.right.get()) == 1;
    return rig.right_doorbell->WordOf(77, 0);
  };
  const auto sent = rig.left->TrySendAndRing(Header(FrameKind::kCall), {}, word);
  REQUIRE(sent.ok());
  CHECK(visible);
}

TEST_CASE("SendToASleepingWordIsOneWake") {
  Rig rig;
  rig.right_doorbell->PrepareWait(kWord);
  const Cost cost;
  Send(rig.left.get(), Header(FrameKind::kCall), kWord);
  Send(rig.left.get(), Header(FrameKind::kCall), kWord);
  CHECK(cost.wakes() == 1);
  CHECK(cost.bells() == 0);
}

TEST_CASE("PlainSendOfAnAnswerRingsItsReplyWordAndOthersTheBell") {
  Rig rig;
  for (const FrameKind kind : {FrameKind::kReply, FrameKind::kException, FrameKind::kFailure}) {
    rig.right_doorbell->PrepareWait(kWord);
    const Cost cost;
    FrameHeader header = Header(kind);
    header.reply_word = kWord;
    REQUIRE(rig.left->TrySend(header, {}).ok());
    CHECK(cost.wakes() == 1);
    CHECK_FALSE(TakeBell(rig.right_doorbell));
  }
  rig.right_doorbell->PrepareWait(kWord);
  const Cost cost;
  FrameHeader call = Header(FrameKind::kCall);
  call.reply_word = kWord;  // of the sender
  REQUIRE(rig.left->TrySend(call, {}).ok());
  CHECK(cost.wakes() == 0);
  CHECK(cost.bells() == 1);
  CHECK(TakeBell(rig.right_doorbell));
}

TEST_CASE("UrgentFrameRingsTheBellToo") {
  Rig rig;
  FrameHeader header = Header(FrameKind::kStopActor);
  header.flags = kFlagUrgent;
  const Cost cost;
  Send(rig.left.get(), header, kWord);
  CHECK(cost.wakes() == 0);
  CHECK(cost.bells() == 1);
}

TEST_CASE("HalfFullRingRingsTheBellToo") {
  Rig rig;
  const FrameHeader header = Header(FrameKind::kCall, 1000);  // 1232 bytes in the ring
  const Cost cost;
  for (int i = 0; i < 6; ++i) Send(rig.left.get(), header, kWord);
  CHECK(cost.bells() == 0);
  Send(rig.left.get(), header, kWord);
  CHECK(cost.bells() == 1);
  CHECK(cost.wakes() == 0);
}

TEST_CASE("ConsumerRingsForRoomWhenHalfIsFree") {
  Rig rig;
  const FrameHeader header = Header(FrameKind::kCall, 1000);
  size_t sent = 0;
  while (Send(rig.left.get(), header, kWord) == SendResult::kSent) ++sent;
  CHECK(sent == 13);
  rig.left_doorbell->PrepareWait(kWord);
  REQUIRE(rig.left->RequestRoomSignal(kWord));
  const Cost cost;
  CHECK(Receive(rig.right.get(), 6) == 6);
  CHECK(cost.wakes() == 0);
  CHECK(Receive(rig.right.get(), 1) == 1);
  CHECK(cost.wakes() == 1);
  CHECK(cost.bells() == 0);
  CHECK(rig.left_doorbell->CommitWait(kWord, absl::Seconds(30)).ok());
  CHECK(News(rig.left_doorbell) == std::vector<uint64_t>{0, uint64_t{1} << 7, 0, 0});
  CHECK(Receive(rig.right.get()) == 6);
  CHECK(cost.wakes() == 1);
}

TEST_CASE("RoomWordOfNonsenseRingsTheBell") {
  Rig rig;
  const uint32_t word_plus_1 = GENERATE(1u, kWaitWords + 1, ~0u);
  std::memcpy(rig.memory.data() + 128, &word_plus_1, sizeof(word_plus_1));
  Send(rig.left.get(), Header(FrameKind::kCall), kWord);
  CHECK(Receive(rig.right.get()) == 1);
  CHECK(TakeBell(rig.left_doorbell));
}

TEST_CASE("DeadPeerGetsNoSignalsAndGivesNoRoom") {
  Rig rig;
  while (Send(rig.left.get(), Header(FrameKind::kCall, 1000), kWord) == SendResult::kSent) {
  }
  REQUIRE(rig.left->RequestRoomSignal(kServiceWord));
  rig.left->PeerDied(absl::OkStatus());
  CHECK_FALSE(rig.left->RequestRoomSignal(kWord));
  CHECK(rig.left->TrySend(Header(FrameKind::kCall), {}).status().code() == absl::StatusCode::kUnavailable);
  rig.right->PeerDied(absl::UnavailableError("gone"));
  const Cost cost;
  CHECK(Receive(rig.right.get()) > 0);
  CHECK(cost.bells() == 0);
}

TEST_CASE("NonsenseIndexesEndTheLink") {
  Rig rig;
  const uint64_t nonsense = 12345;
  std::memcpy(rig.memory.data() + 64, &nonsense, sizeof(nonsense));
  CHECK(rig.left->TrySend(Header(FrameKind::kCall), {}).status().code() == absl::StatusCode::kInternal);
  std::memcpy(rig.memory.data(), &nonsense, sizeof(nonsense));
  for (int i = 0; i < 2; ++i) {
    CHECK(rig.right->Receive(1, [](Frame) {}).status().code() == absl::StatusCode::kDataLoss);
  }
  // The other direction does not depend on it.
  CHECK(rig.right->TrySend(Header(FrameKind::kCall), {}).ok());
  CHECK(Receive(rig.left.get()) == 1);
}

TEST_CASE("CreateRefusesBadSidesBitsAndMemfds") {
  Rig rig;
  const auto code = [&](ScopedFd memfd, int side, uint32_t bit) {
    return RingLink::Create(std::move(memfd), rig.left_doorbell, {side, bit}).status().code();
  };
  CHECK(code(Dup(rig.memfd.get()), 2, 0) == absl::StatusCode::kInvalidArgument);
  CHECK(code(Dup(rig.memfd.get()), -1, 0) == absl::StatusCode::kInvalidArgument);
  CHECK(code(Dup(rig.memfd.get()), 0, kRingBits) == absl::StatusCode::kInvalidArgument);
  auto small = CreateSealedMemfd("test", kRingMemfdBytes / 2);
  REQUIRE(small.ok());
  CHECK(code(*std::move(small), 0, 0) == absl::StatusCode::kInvalidArgument);
  CHECK(code(ScopedFd(), 0, 0) == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("KilledProcessLeavesWhatItPublished") {
  Rig rig;
  const pid_t child = fork();
  if (child == 0) {
    for (uint64_t i = 1; i <= 5; ++i) {
      FrameHeader header = Header(FrameKind::kCall);
      header.sequence = i;
      if (!rig.left->TrySendAndRing(header, {}, [] { return kWord; }).ok()) _exit(1);
    }
    kill(getpid(), SIGKILL);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  rig.right->PeerDied(absl::UnavailableError("killed by signal 9"));
  std::vector<uint64_t> sequences;
  REQUIRE(rig.right->Receive(100, [&](Frame frame) { sequences.push_back(frame.header.sequence); }).ok());
  CHECK(sequences == std::vector<uint64_t>{1, 2, 3, 4, 5});
  CHECK(rig.right->Receive(100, [](Frame) {}).status() == absl::UnavailableError("killed by signal 9"));
}

}  // namespace
}  // namespace monarch
