#include "daemon/launcher/death_links.h"

namespace monarch {

void DeathLinks::Add(const ProcAddress& proc) { entries_.try_emplace(proc); }

void DeathLinks::Link(const ProcAddress& a, uint32_t bit_in_a, const ProcAddress& b, uint32_t bit_in_b) {
  const auto in_a = entries_.find(a);
  const auto in_b = entries_.find(b);
  if (in_a == entries_.end() || in_b == entries_.end() || a == b) return;
  in_a->second.rings.push_back({b, bit_in_b});
  in_b->second.rings.push_back({a, bit_in_a});
}

void DeathLinks::SetStopping(const ProcAddress& proc) {
  const auto found = entries_.find(proc);
  if (found != entries_.end()) found->second.stopping = true;
}

std::optional<std::vector<DeathLinks::Ring>> DeathLinks::OnDeath(const ProcAddress& proc,
                                                                 const ExitStatus& cause) {
  const auto found = entries_.find(proc);
  if (found == entries_.end() || !cause.known()) return std::nullopt;
  Entry& entry = found->second;
  if (entry.told || entry.stopping || all_stopping_) return std::nullopt;
  entry.told = true;
  return entry.rings;
}

void DeathLinks::Forget(const ProcAddress& proc) {
  const auto found = entries_.find(proc);
  if (found == entries_.end()) return;
  for (const Ring& ring : found->second.rings) {
    const auto other = entries_.find(ring.proc);
    if (other != entries_.end()) {
      std::erase_if(other->second.rings, [&](const Ring& back) { return back.proc == proc; });
    }
  }
  entries_.erase(found);
}

}  // namespace monarch
