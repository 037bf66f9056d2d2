#include "daemon/session_keeper.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace monarch {
namespace {

using Actors = std::set<ActorAddress>;

Actors::iterator FirstOf(const Actors& actors, const ProcAddress& proc) {
  return actors.lower_bound(ActorAddress{proc, 0});
}

Actors::iterator EndOf(const Actors& actors, const ProcAddress& proc) {
  return actors.upper_bound(ActorAddress{proc, std::numeric_limits<uint64_t>::max()});
}

}  // namespace

void SessionKeeper::Keep(const BookEntry& entry) {
  if (launcher_ != nullptr) launcher_->Keep(entry.key, entry.body, entry.fds);
}

void SessionKeeper::KeepClient(const SessionClient& client, const ProcAddress& address) {
  Keep(EntryOf(client, address));
}

void SessionKeeper::KeepProc(const ProcRecord& record) { Keep(EntryOf(record)); }

void SessionKeeper::KeepSpawn(const KeptSpawn& spawn) {
  if (launcher_ == nullptr) return;
  Keep(EntryOf(spawn));
  spawns_[spawn.request_id] = {spawn.first, spawn.count, spawn.count};
}

void SessionKeeper::BuryOneOf(const std::string& spawn_id, uint64_t proc) {
  const auto found = spawns_.find(spawn_id);
  if (found == spawns_.end()) return;
  Unburied& spawn = found->second;
  // Else it is of an attempt at the same spawn that a restart cut off.
  if (proc < spawn.first || proc - spawn.first >= spawn.count || --spawn.left > 0) return;
  launcher_->Forget(SpawnKey(spawn_id));
  spawns_.erase(found);
}

void SessionKeeper::Bury(const KeptEnd& end, const std::string& spawn_id) {
  if (launcher_ == nullptr) return;
  const ProcAddress& proc = end.proc;
  // In this order: a daemon that dies in between leaves one news too many.
  Keep(EntryOf(next_end_++ % kEndsMax, end));
  launcher_->Forget(ProcKey(proc.proc), &proc);
  const std::set<ActorAddress> actors(FirstOf(actors_, proc), EndOf(actors_, proc));
  for (const ActorAddress& actor : actors) ForgetActor(actor);
  const std::set<ActorAddress> hangs(FirstOf(hangs_, proc), EndOf(hangs_, proc));
  for (const ActorAddress& actor : hangs) ForgetHang(actor);
  for (const uint64_t other : std::exchange(links_[proc.proc], {})) {
    links_[other].erase(proc.proc);
    for (const auto& [a, b] : {std::pair(proc.proc, other), std::pair(other, proc.proc)}) {
      launcher_->Forget(LinkKey(a, b));
      under_way_.erase({a, b});
    }
  }
  links_.erase(proc.proc);
  BuryOneOf(spawn_id, proc.proc);
}

void SessionKeeper::KeepActor(const ActorRecord& actor) {
  const ProcAddress& proc = actor.address.proc;
  if (launcher_ == nullptr || actors_.contains(actor.address) ||
      std::distance(FirstOf(actors_, proc), EndOf(actors_, proc)) >= kActorsOfProcMax)
    return;
  actors_.insert(actor.address);
  Keep(EntryOf(actor));
}

void SessionKeeper::KeepFailedActor(const ActorRecord& actor) {
  if (!actors_.contains(actor.address)) return;
  const ProcAddress& proc = actor.address.proc;
  if (std::distance(FirstOf(actors_, proc), EndOf(actors_, proc)) > kActorsOfProcMax / 2)
    return ForgetActor(actor.address);
  Keep(EntryOf(actor));
}

void SessionKeeper::ForgetActor(const ActorAddress& actor) {
  if (actors_.erase(actor) != 0) launcher_->Forget(ActorKey(actor));
}

void SessionKeeper::KeepFailure(const FailureEvent& event) {
  if (launcher_ != nullptr) Keep(FailureEntry(next_failure_++ % kFailuresMax, event));
}

void SessionKeeper::KeepHang(const KeptHang& hang) {
  if (launcher_ == nullptr) return;
  hangs_.insert(hang.notice.event.actor);
  Keep(EntryOf(hang));
}

void SessionKeeper::ForgetHang(const ActorAddress& actor) {
  if (hangs_.erase(actor) != 0) launcher_->Forget(HangKey(actor));
}

void SessionKeeper::KeepLink(uint64_t a, uint64_t b, const Introducer::Introduction& how, int ring_fd) {
  if (launcher_ == nullptr) return;
  KeptLink link{a, b, how.ring, how.bit_in_a, how.bit_in_b, true, {}};
  if (how.ring) {
    ScopedFd borrowed(ring_fd);
    absl::StatusOr<ScopedFd> copy = borrowed.Dup();
    borrowed.release();
    if (!copy.ok()) return;
    link.ring_fd = *std::move(copy);
  }
  links_[a].insert(b);
  links_[b].insert(a);
  Keep(EntryOf(link));
  under_way_.insert_or_assign({a, b}, std::move(link));
}

void SessionKeeper::LinkArrived(uint64_t a, uint64_t b) {
  auto node = under_way_.extract({a, b});
  if (node.empty()) return;
  node.mapped().under_way = false;
  Keep(EntryOf(node.mapped()));
}

std::vector<const KeptLink*> SessionKeeper::UnderWay(uint64_t proc) const {
  std::vector<const KeptLink*> links;
  for (const auto& [pair, link] : under_way_) {
    if (link.a == proc || link.b == proc) links.push_back(&link);
  }
  return links;
}

void SessionKeeper::Adopt(SessionBook* book, const ProcTable& procs) {
  next_end_ = book->ends.size();
  next_failure_ = book->failures.size();
  for (const ActorRecord& actor : book->actors) actors_.insert(actor.address);
  for (const KeptHang& hang : book->hangs) hangs_.insert(hang.notice.event.actor);
  for (const auto& [id, spawn] : book->spawns) {
    const auto left = std::count_if(
        procs.all().begin(), procs.all().end(),
        [&spawn = spawn](const auto& proc) { return spawn.Has(proc.second.description.address); });
    if (left == 0) {
      launcher_->Forget(SpawnKey(id));
    } else {
      spawns_[id] = {spawn.first, spawn.count, static_cast<size_t>(left)};
    }
  }
  for (KeptLink& link : book->links) {
    links_[link.a].insert(link.b);
    links_[link.b].insert(link.a);
    if (link.under_way) under_way_.insert_or_assign({link.a, link.b}, std::move(link));
  }
}

}  // namespace monarch
