#include "daemon/actor_list.h"

#include <utility>

namespace monarch {

const ActorRecord* ActorList::Find(const ActorAddress& actor) const {
  const auto found = actors_.find(actor);
  return found == actors_.end() ? nullptr : &found->second;
}

void ActorList::Put(ProcRecord& record, ActorRecord actor) {
  const ActorAddress address = actor.address;
  if (actors_.insert_or_assign(address, std::move(actor)).second) ++record.actors_up;
}

void ActorList::Remove(ProcRecord& record, const ActorAddress& actor) {
  if (actors_.erase(actor) != 0) --record.actors_up;
}

std::optional<ActorAddress> ActorList::MarkFailed(ProcTable& procs, const ActorAddress& actor) {
  const auto found = actors_.find(actor);
  if (found == actors_.end() || found->second.failed) return std::nullopt;
  found->second.failed = true;
  failed_.push_back(actor);
  if (failed_.size() <= kFailedMax) return std::nullopt;
  const auto oldest = actors_.find(failed_.front());
  failed_.pop_front();
  // Its process may have ended, and taken it out of the list.
  if (oldest == actors_.end() || !oldest->second.failed) return std::nullopt;
  const ActorAddress dropped = oldest->first;
  if (ProcRecord* record = procs.Find(dropped.proc)) --record->actors_up;
  actors_.erase(oldest);
  return dropped;
}

std::vector<ActorAddress> ActorList::RemoveLivingOf(ProcRecord& record) {
  std::vector<ActorAddress> removed;
  const ProcAddress& proc = record.description.address;
  for (auto it = actors_.lower_bound(ActorAddress{proc, 0}); it != actors_.end() && it->first.proc == proc;) {
    if (it->second.failed) {
      ++it;
      continue;
    }
    removed.push_back(it->first);
    --record.actors_up;
    it = actors_.erase(it);
  }
  return removed;
}

std::vector<ActorRecord> ActorList::TakeOf(const ProcAddress& proc) {
  std::vector<ActorRecord> living;
  for (auto it = actors_.lower_bound(ActorAddress{proc, 0}); it != actors_.end() && it->first.proc == proc;) {
    if (!it->second.failed) living.push_back(std::move(it->second));
    it = actors_.erase(it);
  }
  return living;
}

}  // namespace monarch
