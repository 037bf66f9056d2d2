#include "message/segment.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr uint64_t kBlockAlign = 64;
constexpr uint64_t kPage = 4096;

constexpr uint64_t RoundDown(uint64_t value, uint64_t to) { return value / to * to; }
constexpr uint64_t RoundUp(uint64_t value, uint64_t to) { return RoundDown(value + to - 1, to); }

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// A set of bytes as maximal ranges, ordered by place.
// Threading: guarded by its owner.
class RangeSet {
 public:
  bool empty() const { return ranges_.empty(); }
  uint64_t bytes() const { return bytes_; }
  Range Last() const { return {ranges_.rbegin()->first, ranges_.rbegin()->second}; }

  // The range that contains `at`, which must be in the set.
  Range Containing(uint64_t at) const {
    const auto next = ranges_.upper_bound(at);
    MONARCH_CHECK(next != ranges_.begin() && std::prev(next)->second > at);
    return {std::prev(next)->first, std::prev(next)->second};
  }

  // Joins it with its neighbours; it must not overlap with any.
  void Insert(Range range) {
    bytes_ += range.size();
    auto next = ranges_.upper_bound(range.begin);
    if (next != ranges_.end() && next->first == range.end) {
      range.end = next->second;
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin() && std::prev(next)->second == range.begin) {
      std::prev(next)->second = range.end;
    } else {
      ranges_.emplace_hint(next, range.begin, range.end);
    }
  }

  // Takes away what of it is in the set.
  void Erase(Range range) {
    auto at = ranges_.upper_bound(range.begin);
    if (at != ranges_.begin()) --at;
    while (at != ranges_.end() && at->first < range.end) {
      const Range found = {at->first, at->second};
      const Range cut = {std::max(found.begin, range.begin), std::min(found.end, range.end)};
      if (cut.begin >= cut.end) {
        ++at;
        continue;
      }
      bytes_ -= cut.size();
      at = ranges_.erase(at);
      if (found.begin < cut.begin) ranges_.emplace(found.begin, cut.begin);
      if (cut.end < found.end) at = ranges_.emplace(cut.end, found.end).first;
    }
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin to end
  uint64_t bytes_ = 0;
};

// The free ranges, found by size: best fit, the lowest of equals, so that what was used before is used again
// and the untouched end stays untouched. Threading: guarded by its owner.
class FreeMap {
 public:
  // False: no free range is large enough.
  bool Take(uint64_t bytes, uint64_t* offset) {
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) return false;
    *offset = found->second;
    const uint64_t rest = found->first - bytes;
    by_size_.erase(found);
    if (rest != 0) by_size_.emplace(rest, *offset + bytes);
    free_.Erase({*offset, *offset + bytes});
    return true;
  }

  void Give(Range range) {
    free_.Insert(range);
    const Range joined = free_.Containing(range.begin);
    if (joined.begin < range.begin) by_size_.erase({range.begin - joined.begin, joined.begin});
    if (range.end < joined.end) by_size_.erase({joined.end - range.end, range.end});
    by_size_.emplace(joined.size(), joined.begin);
  }

  Range Containing(uint64_t at) const { return free_.Containing(at); }

 private:
  RangeSet free_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // size, begin
};

struct Block {
  uint64_t bytes = 0;
  uint64_t holders_to_come = 0;
  uint64_t holders = 0;
};

}  // namespace

struct Segment::State {
  FreeMap free;
  RangeSet cached;  // free, but backed by memory: allocated once and not punched since
  absl::flat_hash_map<uint64_t, Block> blocks;
  uint64_t block_bytes = 0;
  // peer -> offset -> how often it holds the block
  absl::flat_hash_map<uint64_t, absl::flat_hash_map<uint64_t, uint32_t>> held;
};

Segment::Segment(ScopedFd memfd, Mapping mapping, size_t cached_bytes_max)
    : memfd_(std::move(memfd)),
      mapping_(std::move(mapping)),
      cached_bytes_max_(cached_bytes_max),
      state_(std::make_unique<State>()) {
  MutexLock lock(mu_);
  state_->free.Give({0, mapping_.size()});
}

Segment::~Segment() = default;

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(size_t bytes_max, size_t cached_bytes_max) {
  if (bytes_max == 0 || bytes_max > kPeerSegmentBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("segment of ", bytes_max, " bytes, at most ", kPeerSegmentBytesMax));
  }
  const uint64_t bytes = RoundUp(bytes_max, kPage);
  MONARCH_ASSIGN_OR_RETURN(ScopedFd memfd, CreateSealedMemfd("monarch-segment", bytes));
  MONARCH_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(memfd.get(), bytes));
  return std::unique_ptr<Segment>(new Segment(std::move(memfd), std::move(mapping), cached_bytes_max));
}

absl::StatusOr<uint64_t> Segment::Allocate(size_t bytes, uint32_t holders) {
  if (holders == 0) return absl::InvalidArgumentError("segment: a block without holders");
  MutexLock lock(mu_);
  uint64_t offset = 0;
  const uint64_t rounded = RoundUp(std::clamp<uint64_t>(bytes, 1, size()), kBlockAlign);
  if (bytes > size() || !state_->free.Take(rounded, &offset)) {
    return absl::ResourceExhaustedError(absl::StrCat("segment: no room for ", bytes, " bytes, ",
                                                     state_->block_bytes, " of segment_bytes_max=", size(),
                                                     " are lent"));
  }
  state_->cached.Erase({offset, offset + rounded});
  state_->blocks[offset] = Block{rounded, holders, 0};
  state_->block_bytes += rounded;
  return offset;
}

void Segment::Lend(uint64_t offset, uint64_t peer) {
  MutexLock lock(mu_);
  const auto found = state_->blocks.find(offset);
  MONARCH_CHECK(found != state_->blocks.end() && found->second.holders_to_come > 0);
  --found->second.holders_to_come;
  ++found->second.holders;
  ++state_->held[peer][offset];
}

absl::Status Segment::Release(uint64_t offset, uint64_t peer) {
  MutexLock lock(mu_);
  const auto of_peer = state_->held.find(peer);
  if (of_peer == state_->held.end() || !of_peer->second.contains(offset)) {
    return absl::InvalidArgumentError(absl::StrCat("segment: peer ", peer, " holds no block at ", offset));
  }
  const auto count = of_peer->second.find(offset);
  if (--count->second == 0) of_peer->second.erase(count);
  if (of_peer->second.empty()) state_->held.erase(of_peer);
  --state_->blocks.at(offset).holders;
  FreeIfUnheld(offset);
  Trim();
  return absl::OkStatus();
}

void Segment::Forgo(uint64_t offset) {
  MutexLock lock(mu_);
  const auto found = state_->blocks.find(offset);
  MONARCH_CHECK(found != state_->blocks.end() && found->second.holders_to_come > 0);
  --found->second.holders_to_come;
  FreeIfUnheld(offset);
  Trim();
}

void Segment::ReleaseAll(uint64_t peer) {
  MutexLock lock(mu_);
  const auto of_peer = state_->held.find(peer);
  if (of_peer == state_->held.end()) return;
  for (const auto& [offset, count] : of_peer->second) {
    state_->blocks.at(offset).holders -= count;
    FreeIfUnheld(offset);
  }
  state_->held.erase(of_peer);
  Trim();
}

Segment::Stats Segment::stats() const {
  MutexLock lock(mu_);
  return {state_->blocks.size(), state_->block_bytes, state_->cached.bytes()};
}

void Segment::FreeIfUnheld(uint64_t offset) {
  const auto found = state_->blocks.find(offset);
  if (found->second.holders_to_come != 0 || found->second.holders != 0) return;
  const Range range = {offset, offset + found->second.bytes};
  state_->block_bytes -= range.size();
  state_->blocks.erase(found);
  state_->free.Give(range);
  state_->cached.Insert(range);
}

// Gives memory back from the end, for low offsets are used first. Under the lock: the work is in proportion
// to what is freed at the moment, which its user has just spent more time on.
void Segment::Trim() {
  while (state_->cached.bytes() > cached_bytes_max_) {
    const Range last = state_->cached.Last();
    const uint64_t excess = state_->cached.bytes() - cached_bytes_max_;
    const uint64_t begin =
        last.size() > excess ? std::max(last.begin, RoundDown(last.end - excess, kPage)) : last.begin;
    // Whole pages only, and none with a byte of a living block. Pages at the edges, which are dropped from
    // the count here, are punched when their other part is.
    const Range free = state_->free.Containing(begin);
    const uint64_t from = std::max(RoundUp(free.begin, kPage), RoundDown(begin, kPage));
    const uint64_t to = std::min(RoundDown(free.end, kPage), RoundUp(last.end, kPage));
    if (from < to) {
      // A failure leaves the memory where it is, to be used by the next block there.
      (void)fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                      static_cast<off_t>(to - from));
    }
    state_->cached.Erase({std::min(begin, from), std::max(last.end, to)});
  }
}

absl::StatusOr<std::shared_ptr<PeerSegment>> PeerSegment::Attach(ScopedFd memfd) {
  MONARCH_ASSIGN_OR_RETURN(const size_t bytes, CheckSealedMemfd(memfd.get(), 1, kPeerSegmentBytesMax));
  std::shared_ptr<PeerSegment> segment(new PeerSegment());
  MONARCH_ASSIGN_OR_RETURN(segment->mapping_, Mapping::Map(memfd.get(), bytes));
  return segment;
}

absl::StatusOr<absl::Span<uint8_t>> PeerSegment::At(uint64_t offset, uint64_t length) const {
  if (offset > mapping_.size() || length > mapping_.size() - offset) {
    return absl::OutOfRangeError(
        absl::StrCat("segment: ", length, " bytes at ", offset, " are not within ", mapping_.size()));
  }
  return absl::MakeSpan(mapping_.data() + offset, length);
}

}  // namespace monarch
