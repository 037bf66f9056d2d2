#include "message/segment.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace monarch {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::unique_ptr<Segment> Make(size_t bytes, size_t cached_bytes_max) {
  auto segment = Segment::Create(bytes, cached_bytes_max);
  REQUIRE(segment.ok());
  return *std::move(segment);
}

uint64_t Allocate(Segment* segment, size_t bytes, uint32_t holders = 1) {
  auto offset = segment->Allocate(bytes, holders);
  REQUIRE(offset.ok());
  return *offset;
}

void AllocateLendRelease(Segment* segment, size_t bytes) {
  const uint64_t offset = Allocate(segment, bytes);
  std::memset(segment->data() + offset, 1, bytes);
  segment->Lend(offset, 1);
  REQUIRE(segment->Release(offset, 1).ok());
}

// Memory that the kernel holds for the segment.
uint64_t BackedBytes(const Segment& segment) {
  struct stat file = {};
  REQUIRE(fstat(segment.memfd(), &file) == 0);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

ScopedFd Dup(int fd) { return ScopedFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

TEST_CASE("SixteenGiBCostNothingUntilTouched") {
  constexpr size_t kBytes = size_t{16} << 30;
  auto segment = Make(kBytes, kMiB);
  CHECK(segment->size() == kBytes);
  CHECK(BackedBytes(*segment) == 0);
  const uint64_t offset = Allocate(segment.get(), kBytes);
  segment->data()[offset + kBytes - 1] = 1;
  CHECK(BackedBytes(*segment) == 4096);
  auto peer = PeerSegment::Attach(Dup(segment->memfd()));
  REQUIRE(peer.ok());
  CHECK((*(*peer)->At(kBytes - 1, 1))[0] == 1);
}

TEST_CASE("BlocksAreAlignedAndDoNotOverlap") {
  auto segment = Make(kMiB, 0);
  const uint64_t one = Allocate(segment.get(), 1);
  const uint64_t two = Allocate(segment.get(), 65);
  const uint64_t three = Allocate(segment.get(), 0);
  CHECK(one % 64 == 0);
  CHECK(two == one + 64);
  CHECK(three == two + 128);
  CHECK(segment->stats().blocks == 3);
  CHECK(segment->stats().bytes == 256);
}

TEST_CASE("FullSegmentNamesTheLimit") {
  auto segment = Make(kMiB, 0);
  const uint64_t block = Allocate(segment.get(), kMiB);
  for (const size_t bytes : {size_t{1}, kMiB, kMiB + 1, ~size_t{0}}) {
    const absl::Status status = segment->Allocate(bytes, 1).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(status.message()).find("segment_bytes_max=1048576") != std::string::npos);
  }
  segment->Forgo(block);
  CHECK(segment->Allocate(kMiB + 1, 1).status().code() == absl::StatusCode::kResourceExhausted);
  Allocate(segment.get(), kMiB);
}

TEST_CASE("CreateAndAllocateRefuseNonsense") {
  CHECK(Segment::Create(0, 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Segment::Create(~size_t{0}, 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Make(kMiB, 0)->Allocate(1, 0).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("SmallestFittingGapIsUsed") {
  auto segment = Make(kMiB, kMiB);
  std::vector<uint64_t> blocks;
  for (const size_t bytes : {256, 64, 128, 64}) blocks.push_back(Allocate(segment.get(), bytes));
  segment->Forgo(blocks[0]);
  segment->Forgo(blocks[2]);
  CHECK(Allocate(segment.get(), 128) == blocks[2]);
  CHECK(Allocate(segment.get(), 64) == blocks[0]);
}

TEST_CASE("CastBlockIsFreedByItsLastHolder") {
  auto segment = Make(kMiB, kMiB);
  const uint64_t block = Allocate(segment.get(), 100, 4);
  segment->Lend(block, 1);
  segment->Lend(block, 2);
  segment->Lend(block, 2);  // two actors in one proc
  CHECK(segment->Release(block, 1).ok());
  CHECK(segment->Release(block, 2).ok());
  CHECK(segment->Release(block, 2).ok());
  CHECK(segment->stats().blocks == 1);
  segment->Forgo(block);
  CHECK(segment->stats().blocks == 0);
  CHECK(segment->stats().cached_bytes == 128);
}

TEST_CASE("ReleaseOfWhatThePeerDoesNotHoldFreesNothing") {
  auto segment = Make(kMiB, kMiB);
  const uint64_t block = Allocate(segment.get(), 100, 2);
  CHECK(segment->Release(block, 1).code() == absl::StatusCode::kInvalidArgument);
  segment->Lend(block, 1);
  for (const uint64_t offset : {block + 64, block + 1, uint64_t{kMiB}, ~uint64_t{0}}) {
    CHECK(segment->Release(offset, 1).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(segment->Release(block, 2).code() == absl::StatusCode::kInvalidArgument);
  CHECK(segment->stats().blocks == 1);
  CHECK(segment->Release(block, 1).ok());
  CHECK(segment->Release(block, 1).code() == absl::StatusCode::kInvalidArgument);
  CHECK(segment->stats().blocks == 1);
}

TEST_CASE("DeadPeersBlocksComeBackAndOthersStay") {
  auto segment = Make(kMiB, kMiB);
  const uint64_t alone = Allocate(segment.get(), 64);
  const uint64_t both = Allocate(segment.get(), 64, 3);
  segment->Lend(alone, 1);
  segment->Lend(both, 1);
  segment->Lend(both, 1);
  segment->Lend(both, 2);
  segment->ReleaseAll(1);
  segment->ReleaseAll(1);
  CHECK(segment->stats().blocks == 1);
  CHECK(segment->Release(alone, 1).code() == absl::StatusCode::kInvalidArgument);
  CHECK(segment->Release(both, 2).ok());
  CHECK(segment->stats().blocks == 0);
}

TEST_CASE("FreedMemoryIsKeptUpToTheLimit") {
  auto segment = Make(64 * kMiB, 2 * kMiB);
  AllocateLendRelease(segment.get(), kMiB);
  CHECK(BackedBytes(*segment) == kMiB);
  CHECK(segment->stats().cached_bytes == kMiB);
  AllocateLendRelease(segment.get(), kMiB);
  CHECK(segment->stats().cached_bytes == kMiB);
  AllocateLendRelease(segment.get(), 8 * kMiB);
  CHECK(BackedBytes(*segment) == 2 * kMiB);
  CHECK(segment->stats().cached_bytes == 2 * kMiB);
}

TEST_CASE("PagesSharedWithALivingBlockAreNotPunched") {
  auto segment = Make(kMiB, 0);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(Allocate(segment.get(), 6000));
    std::memset(segment->data() + blocks.back(), 'a' + i, 6000);
  }
  segment->Forgo(blocks[0]);
  segment->Forgo(blocks[2]);
  const std::string living(reinterpret_cast<char*>(segment->data() + blocks[1]), 6000);
  CHECK(living == std::string(6000, 'b'));
  // Bytes 6016 to 12031: pages 1 and 2 of 0 to 4.
  CHECK(BackedBytes(*segment) == 2 * 4096);
  segment->Forgo(blocks[1]);
  CHECK(BackedBytes(*segment) == 0);
  CHECK(segment->stats().cached_bytes == 0);
}

TEST_CASE("PeerSegmentChecksRanges") {
  auto segment = Make(kMiB, 0);
  auto peer = PeerSegment::Attach(Dup(segment->memfd()));
  REQUIRE(peer.ok());
  segment->data()[100] = 7;
  CHECK((*(*peer)->At(100, 1))[0] == 7);
  CHECK((*peer)->At(0, kMiB)->size() == kMiB);
  CHECK((*peer)->At(kMiB, 0).ok());
  const std::pair<uint64_t, uint64_t> bad[] = {
      {0, kMiB + 1}, {kMiB, 1}, {kMiB + 1, 0}, {~uint64_t{0}, 2}, {2, ~uint64_t{0}}};
  for (const auto& [offset, length] : bad) {
    CHECK((*peer)->At(offset, length).status().code() == absl::StatusCode::kOutOfRange);
  }
  CHECK_FALSE(PeerSegment::Attach(ScopedFd()).ok());
}

TEST_CASE("PeerKeepsTheBytesOfAGoneSegment") {
  auto segment = Make(kMiB, 0);
  auto peer = PeerSegment::Attach(Dup(segment->memfd()));
  REQUIRE(peer.ok());
  segment->data()[5] = 9;
  segment.reset();
  CHECK((*(*peer)->At(5, 1))[0] == 9);
}

// What the segment should do, slowly.
class Model {
 public:
  struct Block {
    uint64_t bytes = 0;
    uint32_t to_come = 0;
    std::map<uint64_t, uint32_t> holders;
    uint8_t mark = 0;
  };
  std::map<uint64_t, Block> blocks;
  uint64_t size = 0;

  static uint64_t Rounded(uint64_t bytes) { return bytes == 0 ? 64 : (bytes + 63) / 64 * 64; }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [offset, block] : blocks) sum += Rounded(block.bytes);
    return sum;
  }
  // The size of the gap that best fit takes.
  std::optional<uint64_t> BestGap(uint64_t bytes) const {
    std::optional<uint64_t> best;
    uint64_t end = 0;
    const auto consider = [&](uint64_t gap) {
      if (gap >= Rounded(bytes) && (!best || gap < *best)) best = gap;
    };
    for (const auto& [offset, block] : blocks) {
      consider(offset - end);
      end = offset + Rounded(block.bytes);
    }
    consider(size - end);
    return best;
  }
  uint64_t GapAt(uint64_t offset) const {
    const auto next = blocks.lower_bound(offset);
    uint64_t begin = 0;
    if (next != blocks.begin()) begin = std::prev(next)->first + Rounded(std::prev(next)->second.bytes);
    return offset < begin ? 0 : (next == blocks.end() ? size : next->first) - begin;
  }
  void DropIfUnheld(uint64_t offset) {
    if (blocks[offset].to_come == 0 && blocks[offset].holders.empty()) blocks.erase(offset);
  }
};

// Threading: confined to its test.
class PropertyRun {
 public:
  explicit PropertyRun(uint32_t seed) : random_(seed), segment_(Make(kSize, kCached)) { model_.size = kSize; }

  void Step() {
    switch (Below(8)) {
      case 0:
      case 1:
      case 2:
        return StepAllocate();
      case 3:
      case 4:
        return StepLend();
      case 5:
        return StepForgo();
      case 6:
        return StepRelease();
      default:
        return Below(10) == 0 ? StepReleaseAll() : StepRelease();
    }
  }

  void Check() {
    const Segment::Stats stats = segment_->stats();
    REQUIRE(stats.blocks == model_.blocks.size());
    REQUIRE(stats.bytes == model_.bytes());
    REQUIRE(stats.cached_bytes <= kCached);
    uint64_t backed_max = stats.cached_bytes;
    for (const auto& [offset, block] : model_.blocks) {
      // Each end of a block may share a page with free bytes.
      backed_max += Model::Rounded(block.bytes) + 2 * 4096;
      // One assertion for all bytes: each costs more than the look.
      bool intact = true;
      for (uint64_t i = 0; i < block.bytes; i += 61)
        intact = intact && segment_->data()[offset + i] == block.mark;
      REQUIRE(intact);
    }
    REQUIRE(BackedBytes(*segment_) <= backed_max + 2 * 4096);
  }

 private:
  static constexpr uint64_t kSize = 512 * 1024;
  static constexpr uint64_t kCached = 32 * 1024;
  static constexpr uint32_t kPeers = 5;

  uint32_t Below(uint32_t n) { return random_() % n; }
  std::map<uint64_t, Model::Block>::iterator AnyBlock() {
    auto at = model_.blocks.begin();
    if (!model_.blocks.empty()) std::advance(at, Below(static_cast<uint32_t>(model_.blocks.size())));
    return at;
  }

  void StepAllocate() {
    const uint64_t bytes = Below(3) == 0 ? Below(60'000) : Below(3000);
    const uint32_t holders = 1 + Below(3);
    const auto offset = segment_->Allocate(bytes, holders);
    const auto gap = model_.BestGap(bytes);
    REQUIRE(offset.ok() == gap.has_value());
    if (!offset.ok()) return;
    REQUIRE(*offset % 64 == 0);
    REQUIRE(model_.GapAt(*offset) == *gap);
    const auto mark = static_cast<uint8_t>(1 + Below(255));
    std::memset(segment_->data() + *offset, mark, bytes);
    model_.blocks[*offset] = {bytes, holders, {}, mark};
  }
  void StepLend() {
    const auto block = AnyBlock();
    if (block == model_.blocks.end() || block->second.to_come == 0) return;
    const uint64_t peer = Below(kPeers);
    segment_->Lend(block->first, peer);
    --block->second.to_come;
    ++block->second.holders[peer];
  }
  void StepForgo() {
    const auto block = AnyBlock();
    if (block == model_.blocks.end() || block->second.to_come == 0) return;
    segment_->Forgo(block->first);
    --block->second.to_come;
    model_.DropIfUnheld(block->first);
  }
  void StepRelease() {
    const auto block = AnyBlock();
    const uint64_t peer = Below(kPeers);
    const uint64_t offset =
        block == model_.blocks.end() ? Below(kSize) : block->first + (Below(8) == 0 ? 64 : 0);
    const auto found = model_.blocks.find(offset);
    const bool held = found != model_.blocks.end() && found->second.holders.count(peer) != 0;
    REQUIRE(segment_->Release(offset, peer).ok() == held);
    if (!held) return;
    if (--found->second.holders[peer] == 0) found->second.holders.erase(peer);
    model_.DropIfUnheld(offset);
  }
  void StepReleaseAll() {
    const uint64_t peer = Below(kPeers);
    segment_->ReleaseAll(peer);
    std::vector<uint64_t> offsets;
    for (auto& [offset, block] : model_.blocks) {
      if (block.holders.erase(peer) != 0) offsets.push_back(offset);
    }
    for (const uint64_t offset : offsets) model_.DropIfUnheld(offset);
  }

  std::mt19937 random_;
  std::unique_ptr<Segment> segment_;
  Model model_;
};

TEST_CASE("SegmentBehavesAsItsModel") {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    PropertyRun run(seed);
    for (int i = 0; i < 2000; ++i) {
      run.Step();
      if (i % 20 == 0) run.Check();
    }
    run.Check();
  }
}

TEST_CASE("ThreadsShareASegment") {
  auto segment = Make(8 * kMiB, 64 * 1024);
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&segment, t] {
      for (int i = 0; i < 500; ++i) {
        const size_t bytes = 100 * (i % 50 + 1);
        const auto offset = segment->Allocate(bytes, 1);
        if (!offset.ok()) std::abort();
        std::memset(segment->data() + *offset, static_cast<int>(t), bytes);
        segment->Lend(*offset, t);
        for (size_t b = 0; b < bytes; ++b) {
          if (segment->data()[*offset + b] != t) std::abort();
        }
        if (i % 10 == 9) {
          segment->ReleaseAll(t);
        } else if (i % 2 == 0 && !segment->Release(*offset, t).ok()) {
          std::abort();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(segment->stats().blocks == 0);
  CHECK(segment->stats().cached_bytes <= 64 * 1024);
}

}  // namespace
}  // namespace monarch
