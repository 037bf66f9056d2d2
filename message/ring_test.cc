#include "message/ring.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace monarch {
namespace {

// The memory of one ring, as both sides and a hostile third see it.
struct Memory {
  std::unique_ptr<uint64_t[]> words = std::make_unique<uint64_t[]>((4096 + kRingBytes) / 8);
  uint8_t* ring() { return reinterpret_cast<uint8_t*>(words.get()); }
  void SetTail(uint64_t value) { std::memcpy(ring(), &value, 8); }
  void SetHead(uint64_t value) { std::memcpy(ring() + 64, &value, 8); }
  uint64_t Tail() { return words[0]; }
  uint64_t Head() { return words[8]; }
  void SetLength(size_t at, uint32_t value) { std::memcpy(ring() + 4096 + at, &value, 4); }
};

absl::Span<const uint8_t> Span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool Push(RingProducer* producer, const std::string& head, const std::string& tail = "") {
  const auto pushed = producer->TryPush(Span(head), Span(tail));
  REQUIRE(pushed.ok());
  return *pushed;
}

std::string Pop(RingConsumer* consumer) {
  std::string out = "nothing";
  const auto popped = consumer->TryPop(&out);
  REQUIRE(popped.ok());
  return *popped ? out : "none";
}

TEST_CASE("RecordIsHeadAndTail") {
  Memory memory;
  RingProducer producer(memory.ring());
  RingConsumer consumer(memory.ring());
  CHECK(consumer.empty());
  CHECK(Pop(&consumer) == "none");
  CHECK(Push(&producer, "head", "and tail"));
  CHECK(Push(&producer, ""));
  CHECK(memory.Tail() == 16 + 8);
  CHECK_FALSE(consumer.empty());
  CHECK(Pop(&consumer) == "headand tail");
  CHECK(Pop(&consumer) == "");
  CHECK(memory.Head() == 24);
  CHECK(consumer.empty());
}

TEST_CASE("RecordLiesInMemoryAsWritten") {
  Memory memory;
  RingProducer producer(memory.ring());
  CHECK(Push(&producer, "ab", "cde"));
  CHECK(std::memcmp(memory.ring() + 4096, "\5\0\0\0abcde", 9) == 0);
  CHECK(memory.Tail() == 16);
}

TEST_CASE("RecordOfHalfARingAtMost") {
  Memory memory;
  RingProducer producer(memory.ring());
  RingConsumer consumer(memory.ring());
  const std::string largest(kRingRecordBytesMax, 'x');
  CHECK(producer.TryPush(Span(largest), Span("y")).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(producer.TryPush(Span(largest + "y"), {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Push(&producer, largest));
  CHECK(producer.half_full());
  CHECK(Push(&producer, largest));
  CHECK_FALSE(Push(&producer, ""));
  CHECK(Pop(&consumer) == largest);
  CHECK(Push(&producer, largest));
}

TEST_CASE("RecordsWrapByteWiseAtEachPlace") {
  Memory memory;
  RingProducer producer(memory.ring());
  RingConsumer consumer(memory.ring());
  std::mt19937 random(1);
  std::deque<std::string> expected;
  for (int i = 0; i < 20'000; ++i) {
    std::string record(random() % 500, static_cast<char>('a' + i % 26));
    const size_t cut = record.empty() ? 0 : random() % record.size();
    while (!Push(&producer, record.substr(0, cut), record.substr(cut))) {
      REQUIRE(Pop(&consumer) == expected.front());
      expected.pop_front();
    }
    expected.push_back(std::move(record));
  }
  for (const std::string& record : expected) REQUIRE(Pop(&consumer) == record);
  CHECK(consumer.empty());
}

TEST_CASE("HalfFullIsFromHalfOn") {
  Memory memory;
  RingProducer producer(memory.ring());
  const std::string record(1020, 'x');
  for (int i = 0; i < 8; ++i) {
    CHECK_FALSE(producer.half_full());
    CHECK(Push(&producer, record));
  }
  CHECK(producer.half_full());
}

TEST_CASE("RoomIsSignalledOnceWhenHalfIsFree") {
  Memory memory;
  RingProducer producer(memory.ring());
  RingConsumer consumer(memory.ring());
  const std::string record(1020, 'x');
  CHECK_FALSE(producer.RequestRoomSignal(7));
  CHECK_FALSE(consumer.TakeRoomSignal());
  while (Push(&producer, record)) {
  }
  CHECK_FALSE(consumer.TakeRoomSignal());
  CHECK(producer.RequestRoomSignal(7));
  for (int i = 0; i < 8; ++i) {
    CHECK_FALSE(consumer.TakeRoomSignal());
    Pop(&consumer);
  }
  CHECK(consumer.TakeRoomSignal() == 7);
  CHECK_FALSE(consumer.TakeRoomSignal());
  CHECK(Push(&producer, std::string(kRingRecordBytesMax, 'y')));
}

TEST_CASE("ConsumersNonsenseIndexIsFinal") {
  const uint64_t head = GENERATE(uint64_t{24}, uint64_t{1}, ~uint64_t{0}, ~uint64_t{0} - kRingBytes - 7);
  Memory memory;
  RingProducer producer(memory.ring());
  REQUIRE(Push(&producer, "0123456789"));
  memory.SetHead(head);
  CHECK(producer.half_full());
  CHECK_FALSE(producer.RequestRoomSignal(1));
  CHECK(producer.TryPush({}, {}).status().code() == absl::StatusCode::kInternal);
  memory.SetHead(0);
  CHECK(producer.TryPush({}, {}).status().code() == absl::StatusCode::kInternal);
}

TEST_CASE("ProducersNonsenseIndexIsFinal") {
  const uint64_t tail =
      GENERATE(uint64_t{1}, uint64_t{4}, uint64_t{kRingBytes + 8}, ~uint64_t{0}, uint64_t{1} << 63);
  Memory memory;
  RingConsumer consumer(memory.ring());
  memory.SetTail(tail);
  std::string out = "untouched";
  CHECK(consumer.TryPop(&out).status().code() == absl::StatusCode::kDataLoss);
  memory.SetTail(8);
  CHECK(consumer.TryPop(&out).status().code() == absl::StatusCode::kDataLoss);
  CHECK(consumer.empty());
  CHECK(out == "untouched");
}

TEST_CASE("IndexThatRunsBackIsDataLoss") {
  Memory memory;
  RingProducer producer(memory.ring());
  RingConsumer consumer(memory.ring());
  REQUIRE(Push(&producer, "abc"));
  CHECK(Pop(&consumer) == "abc");
  memory.SetTail(0);
  std::string out;
  CHECK(consumer.TryPop(&out).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("LengthBeyondWhatIsThereIsDataLoss") {
  struct {
    uint64_t tail;
    uint32_t length;
  } const cases[] = {
      {8, 5}, {16, 13}, {16, ~uint32_t{0}}, {kRingBytes, kRingRecordBytesMax + 1}, {16, 1u << 31}};
  for (const auto& c : cases) {
    Memory memory;
    RingConsumer consumer(memory.ring());
    memory.SetLength(0, c.length);
    memory.SetTail(c.tail);
    std::string out;
    CHECK(consumer.TryPop(&out).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("TwoThreadsPassRecordsWithoutLossOrLostSignal") {
  constexpr int kRecords = 50'000;
  Memory memory;
  std::atomic<uint32_t> signals{0};  // the producer sleeps on it
  std::thread producing([&] {
    RingProducer producer(memory.ring());
    std::mt19937 random(2);
    uint32_t seen = 0;
    for (int i = 0; i < kRecords; ++i) {
      std::string record(8 + random() % (i % 100 == 0 ? 8000 : 300), static_cast<char>(i));
      std::memcpy(record.data(), &i, sizeof(i));
      while (true) {
        const auto pushed = producer.TryPush(Span(record).first(4), Span(record).subspan(4));
        if (!pushed.ok()) std::abort();
        if (*pushed) break;
        if (!producer.RequestRoomSignal(3)) continue;
        signals.wait(seen);
        seen = signals.load();
      }
    }
  });
  RingConsumer consumer(memory.ring());
  std::string record;
  bool intact = true;
  for (int i = 0; i < kRecords && intact;) {
    const auto popped = consumer.TryPop(&record);
    intact = popped.ok();
    if (!intact) break;
    if (!*popped) {
      std::this_thread::yield();
      continue;
    }
    int number = -1;
    std::memcpy(&number, record.data(), sizeof(number));
    intact = number == i && record.find_first_not_of(static_cast<char>(i), sizeof(i)) == std::string::npos;
    ++i;
    if (const auto word = consumer.TakeRoomSignal()) {
      intact = intact && *word == 3;
      signals.fetch_add(1);
      signals.notify_one();
    }
  }
  REQUIRE(intact);
  producing.join();
  CHECK(consumer.empty());
}

}  // namespace
}  // namespace monarch
