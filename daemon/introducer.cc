#include "daemon/introducer.h"

#include <algorithm>

namespace monarch {

Introducer::Introducer(uint32_t ring_links_max) : ring_links_max_(std::min(ring_links_max, kRingBits)) {}

bool Introducer::FreeBit(uint64_t proc, uint32_t* bit) const {
  if (ring_links_max_ == 0) return false;
  const auto used = used_.find(proc);
  if (used == used_.end()) {
    *bit = 0;
    return true;
  }
  if (used->second.count() >= ring_links_max_) return false;
  for (uint32_t i = 0; i < kRingBits; ++i) {
    if (used->second[i]) continue;
    *bit = i;
    return true;
  }
  return false;
}

Introducer::Introduction Introducer::Introduce(uint64_t a, uint64_t b) {
  const auto key = std::minmax(a, b);
  auto [found, is_new] = pairs_.try_emplace(key);
  Pair& pair = found->second;
  uint32_t low = 0;
  uint32_t high = 0;
  if (is_new && FreeBit(key.first, &low) && FreeBit(key.second, &high)) {
    pair = Pair{true, low, high};
    used_[key.first].set(low);
    used_[key.second].set(high);
  }
  const bool a_is_low = a == key.first;
  return {is_new, pair.ring, a_is_low ? pair.bit_in_low : pair.bit_in_high,
          a_is_low ? pair.bit_in_high : pair.bit_in_low};
}

void Introducer::Adopt(uint64_t a, uint64_t b, bool ring, uint32_t bit_in_a, uint32_t bit_in_b) {
  const auto [low, high] = std::minmax(a, b);
  pairs_[{low, high}] = {ring, a < b ? bit_in_a : bit_in_b, a < b ? bit_in_b : bit_in_a};
  if (!ring) return;
  used_[a].set(bit_in_a);
  used_[b].set(bit_in_b);
}

void Introducer::Remove(uint64_t proc) {
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    const auto& [key, pair] = *it;
    if (key.first != proc && key.second != proc) {
      ++it;
      continue;
    }
    if (pair.ring) {
      used_[key.first].reset(pair.bit_in_low);
      used_[key.second].reset(pair.bit_in_high);
    }
    it = pairs_.erase(it);
  }
  used_.erase(proc);
}

}  // namespace monarch
