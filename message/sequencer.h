#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "message/link.h"

namespace monarch {

// Puts frames of each (sender, receiver) pair in order: delivers the next expected, drops duplicates, holds
// early ones back. Pure. Threading: guarded by its owner.
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
  size_t held() const { return held_; }

 private:
  struct Pair {
    uint64_t next = 1;
    std::map<uint64_t, Frame> held;
  };
  Limits limits_;
  size_t held_ = 0;
  absl::flat_hash_map<std::pair<ActorAddress, ActorAddress>, Pair> pairs_;
};

}  // namespace monarch
