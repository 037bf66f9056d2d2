#include "daemon/hang_machine.h"

#include <algorithm>
#include <limits>

namespace monarch {

void HangMachine::Watch(const ActorAddress& actor, absl::Duration threshold) {
  watched_[actor].threshold = std::max(threshold, kThresholdMin);
}

void HangMachine::Forget(const ActorAddress& actor) { watched_.erase(actor); }

void HangMachine::ForgetProc(const ProcAddress& proc) {
  watched_.erase(watched_.lower_bound(ActorAddress{proc, 0}),
                 watched_.upper_bound(ActorAddress{proc, std::numeric_limits<uint64_t>::max()}));
}

std::vector<ProcAddress> HangMachine::Procs() const {
  std::vector<ProcAddress> procs;
  for (const auto& [actor, entry] : watched_) {
    if (procs.empty() || procs.back() != actor.proc) procs.push_back(actor.proc);
  }
  return procs;
}

std::optional<absl::Duration> HangMachine::ThresholdOf(const ActorAddress& actor) const {
  const auto found = watched_.find(actor);
  if (found == watched_.end()) return std::nullopt;
  return found->second.threshold;
}

HangMachine::Findings HangMachine::Look(const std::vector<Seen>& at_work, absl::Duration now) {
  std::map<ActorAddress, absl::Duration> running;
  for (const Seen& seen : at_work) running.emplace(seen.actor, seen.began);
  Findings findings;
  for (auto& [actor, entry] : watched_) {
    const auto found = running.find(actor);
    const bool runs = found != running.end();
    if (entry.told && (!runs || found->second != *entry.told)) {
      findings.recovered.push_back({actor, *entry.told, now - *entry.told});
      entry.told.reset();
    }
    absl::Duration next = now + entry.threshold;
    if (runs && !entry.told) {
      const absl::Duration due = found->second + entry.threshold;
      if (due <= now) {
        findings.overdue.push_back(actor);
      } else {
        next = due;
      }
    }
    if (!findings.next || next < *findings.next) findings.next = next;
  }
  return findings;
}

bool HangMachine::Told(const ActorAddress& actor, absl::Duration began) {
  const auto found = watched_.find(actor);
  if (found == watched_.end() || found->second.told == began) return false;
  found->second.told = began;
  return true;
}

bool HangMachine::IsTold(const ActorAddress& actor, absl::Duration began) const {
  const auto found = watched_.find(actor);
  return found != watched_.end() && found->second.told == began;
}

}  // namespace monarch
