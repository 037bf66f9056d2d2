#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "message/link.h"

namespace monarch {

// Puts frames of each (sender, receiver) pair in order: delivers the next expected, drops duplicates, holds
// early ones back. A pair's numbers begin with a frame that says so (kFlagFirst), and after the one that ends
// them (kFlagLast) nothing is kept of the pair until they begin anew, further up. Pure. Threading: guarded by
// its owner.
class Sequencer {
 public:
  struct Limits {
    size_t held_frames_max = 4096;  // in all pairs together
    size_t pairs_max = 1 << 20;
  };
  explicit Sequencer(Limits limits) : limits_(limits) {}

  // Calls `deliver` for this frame and the held ones it releases, in sequence. ResourceExhausted if the frame
  // is early and no room is left to hold it, or its pair is new and one too many (it is dropped). Sequence 0
  // is InvalidArgument. `deliver` must not call this object.
  absl::Status Accept(Frame frame, absl::FunctionRef<void(Frame)> deliver);
  // The proc is gone: forgets its pairs and drops what was held from it (those frames follow a gap that
  // nobody fills).
  void Forget(const ProcAddress& proc);
  // The procs with actors whose numbers to this one have not ended.
  std::set<ProcAddress> SendersTo(const ActorAddress& receiver) const;
  size_t held() const { return held_; }
  bool HoldsFrom(const ProcAddress& sender) const { return held_from_.contains(sender); }
  size_t pairs() const { return pairs_.size(); }

 private:
  struct Pair {
    uint64_t next = 0;  // 0: it begins with a frame that has not come
    std::map<uint64_t, Frame> held;
  };
  static bool IsNext(const Pair& pair, const FrameHeader& header);
  // Gives the pair's next frame out, and those that it releases.
  void Release(Pair* pair, Frame frame, absl::FunctionRef<void(Frame)> deliver);
  void CountHeld(const ProcAddress& sender, int change);
  Limits limits_;
  size_t held_ = 0;
  absl::flat_hash_map<ProcAddress, int> held_from_;  // none is 0
  absl::flat_hash_map<std::pair<ActorAddress, ActorAddress>, Pair> pairs_;
};

}  // namespace monarch
