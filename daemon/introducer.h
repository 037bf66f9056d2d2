#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <utility>

#include "message/doorbell.h"

namespace monarch {

// Decides by which means two processes of a session talk, and hands out the news bits of their doorbells.
// Pure. INV-ring-once: a pair of processes is introduced once, so that there is never a second ring between
// them. Threading: confined to its caller.
class Introducer {
 public:
  // `ring_links_max`: for each process; further links are relayed. 0: all are.
  explicit Introducer(uint32_t ring_links_max);

  struct Introduction {
    bool is_new = false;  // false: both sides know already; nothing to send
    bool ring = false;
    uint32_t bit_in_a = 0;  // in a's doorbell, set by b; with `ring` only
    uint32_t bit_in_b = 0;
  };
  // The order of the two does not matter to whether they know each other. `a` and `b` differ.
  Introduction Introduce(uint64_t a, uint64_t b);
  // A pair that the last daemon introduced.
  void Adopt(uint64_t a, uint64_t b, bool ring, uint32_t bit_in_a, uint32_t bit_in_b);
  // Its pairs end; its peers' bits are free again.
  void Remove(uint64_t proc);
  size_t pairs() const { return pairs_.size(); }

 private:
  struct Pair {
    bool ring = false;
    uint32_t bit_in_low = 0;  // in the doorbell of the one with the lower number
    uint32_t bit_in_high = 0;
  };
  using Bits = std::bitset<kRingBits>;

  bool FreeBit(uint64_t proc, uint32_t* bit) const;

  // Constant after construction.
  const uint32_t ring_links_max_;

  // Confined to the caller.
  std::map<std::pair<uint64_t, uint64_t>, Pair> pairs_;
  std::map<uint64_t, Bits> used_;
};

}  // namespace monarch
