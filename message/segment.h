#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"
#include "message/memfd.h"

namespace monarch {

// The one segment of this process: a memfd of fixed, sparse size in which only this process allocates. The
// allocator's state is private memory; nothing but payload is shared. Blocks start at multiples of 64.
// Threading: thread-safe (mu_).
class Segment {
 public:
  struct Stats {
    uint64_t blocks = 0;
    uint64_t bytes = 0;         // lent or being written; each block's rounded up to a multiple of 64
    uint64_t cached_bytes = 0;  // freed, still backed by memory
  };
  // `bytes_max`: virtual size (rounded up to pages); memory is taken when touched and given back (hole
  // punched) when more than `cached_bytes_max` lies free.
  static absl::StatusOr<std::unique_ptr<Segment>> Create(size_t bytes_max, size_t cached_bytes_max);
  ~Segment();

  int memfd() const { return memfd_.get(); }
  size_t size() const { return mapping_.size(); }
  uint8_t* data() const { return mapping_.data(); }

  // A block of `bytes` with `holders` receivers to come (a cast has several; 0 is InvalidArgument).
  // ResourceExhausted names the limit.
  absl::StatusOr<uint64_t> Allocate(size_t bytes, uint32_t holders);
  // One holder `peer` (a key of the caller's choice: the receiving proc) has the block from now on; called
  // before the peer can learn of the block. A peer may hold a block several times.
  void Lend(uint64_t offset, uint64_t peer);
  // The holder gave it back. InvalidArgument if that peer does not hold that block: hostile or a bug; nothing
  // freed.
  absl::Status Release(uint64_t offset, uint64_t peer);
  // One of the holders to come will never be (its send failed).
  void Forgo(uint64_t offset);
  // The peer died: all that it held comes back.
  void ReleaseAll(uint64_t peer);
  Stats stats() const;

 private:
  struct State;
  Segment(ScopedFd memfd, Mapping mapping, size_t cached_bytes_max);
  void FreeIfUnheld(uint64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ScopedFd memfd_;
  const Mapping mapping_;
  const size_t cached_bytes_max_;

  mutable Mutex mu_;
  const std::unique_ptr<State> state_ ABSL_PT_GUARDED_BY(mu_);
};

// Of a peer's segment; bounds the address space that one peer can take from us.
inline constexpr size_t kPeerSegmentBytesMax = size_t{1} << 40;

// A peer's segment, mapped. Kept alive (shared_ptr) by every payload that points into it, also after the
// peer's death. Threading: immutable after creation.
class PeerSegment {
 public:
  // The memfd is checked before it is mapped; at most kPeerSegmentBytesMax.
  static absl::StatusOr<std::shared_ptr<PeerSegment>> Attach(ScopedFd memfd);
  // OutOfRange unless the block lies in the segment.
  absl::StatusOr<absl::Span<uint8_t>> At(uint64_t offset, uint64_t length) const;

 private:
  PeerSegment() = default;
  Mapping mapping_;
};

}  // namespace monarch
