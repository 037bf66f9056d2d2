#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/cpp/runtime/fork_guard.h"
#include "client/cpp/runtime/inbox.h"
#include "message/segment.h"

namespace monarch {

// Blocks of other processes' segments that this process is done with, until they are told in one frame.
// Threading: thread-safe.
class ReleaseQueue {
 public:
  // `wake`: blocks are waiting; with `soon` there are so many that they should go at once. Called without
  // locks held.
  explicit ReleaseQueue(std::function<void(bool soon)> wake) : wake_(std::move(wake)) {}

  void Add(const ProcAddress& owner, uint64_t offset, uint64_t bytes);
  std::map<ProcAddress, std::vector<uint64_t>> Take();

 private:
  const ForkGuard fork_;
  const std::function<void(bool soon)> wake_;
  Mutex mu_;
  std::map<ProcAddress, std::vector<uint64_t>> offsets_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

// An own copy. A std::string would do, but its start is aligned for less than what arrays of numbers want.
std::shared_ptr<PayloadBytes> CopyPayload(absl::Span<const uint8_t> bytes);
// `block` lies in `segment` at `offset`; `owner` gets it back through `releases`.
std::shared_ptr<PayloadBytes> BorrowPayload(std::shared_ptr<PeerSegment> segment, absl::Span<uint8_t> block,
                                            uint64_t offset, const ProcAddress& owner, bool shared,
                                            std::shared_ptr<ReleaseQueue> releases);

// A message whose payload is `meta` alone; made here rather than received.
Message MakeMessage(const FrameHeader& header, std::string_view meta);

}  // namespace monarch
