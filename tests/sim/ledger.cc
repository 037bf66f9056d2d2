#include "tests/sim/ledger.h"

#include <algorithm>

#include "tests/sim/process.h"

namespace monarch::sim {

void Ledger::OnLaunch(const ProcAddress& address, Member* process, const std::string& boot) {
  if (lives_.contains(address)) world_->Violate("two processes are ", address.ToString());
  Life& life = lives_[address];
  life.address = address;
  life.process = process;
  life.boot = boot;
  world_->Trace("host ", process->host(), ": ", address.ToString(), " is pid ", process->pid(), " for ",
                boot);
}

void Ledger::OnWelcome(Member& member) {
  if (member.is_client()) OnLaunch(member.address(), &member, "client");
  Life& life = lives_.at(member.address());
  life.welcomed = world_->Now();
  world_->Trace(member.address().ToString(), " is welcome");
}

void Ledger::OnReady(Member& member) {
  lives_.at(member.address()).readied = world_->Now();
  world_->Trace(member.address().ToString(), " is ready");
}

void Ledger::OnDeath(const ProcAddress& address) {
  const auto found = lives_.find(address);
  if (found != lives_.end()) found->second.died = world_->Now();
}

void Ledger::OnNotice(Member& receiver, const ProcAddress& dead, const FailureEvent& event, int count) {
  world_->Trace(receiver.address().ToString(), " hears of ", dead.ToString(), ": ", event.Summary());
  if (count > 1)
    world_->Violate(receiver.address().ToString(), " is told of the death of ", dead.ToString(), " again");
  told_.try_emplace({dead, receiver.host()}, world_->Now());
  const auto found = lives_.find(dead);
  // What it sent before was sent.
  if (found != lives_.end() && found->second.died && !doubted(found->second.process->host()) &&
      !doubted(receiver.host())) {
    const uint64_t sent = found->second.process->sent_to(receiver.address());
    const uint64_t came =
        receiver.received_from(dead) + found->second.process->returned_of(receiver.address());
    if (sent != came && receiver.peers().contains(dead) && !found->second.process->cut_off())
      world_->Violate(receiver.address().ToString(), " has ", came, " frames of ", sent, " of ",
                      dead.ToString(), " when it is told of its death");
  }
  if (found == lives_.end()) {
    if (!without_launcher_.contains(receiver.host()) && !doubted(receiver.host()))
      world_->Violate(receiver.address().ToString(), " is told of ", dead.ToString(), ", that never was");
    return;
  }
  if (found->second.died) return;
  const bool host_lost = event.kind == FailureKind::kUnreachable || event.kind == FailureKind::kStopped;
  if (!host_lost || !doubted(found->second.process->host()))
    world_->Violate(receiver.address().ToString(), " is told that ", dead.ToString(),
                    " is dead, which lives");
}

void Ledger::OnEarlyDetail(const Member& receiver, const ProcAddress& dead) {
  const Life& life = lives_.at(dead);
  // It may have said hello between the two.
  if (life.died && *life.died <= *lives_.at(receiver.address()).welcomed) return;
  world_->Violate(receiver.address().ToString(), " gets detail of ", dead.ToString(), " before its death");
}

Ledger::Spawn* Ledger::NewSpawn() {
  spawns_.push_back(std::make_unique<Spawn>());
  spawns_.back()->id = absl::StrCat("spawn-", spawns_.size());
  spawns_.back()->mesh = absl::StrCat("mesh", spawns_.size());
  spawns_.back()->asked = world_->Now();
  return spawns_.back().get();
}

void Ledger::OnSpawned(Spawn* spawn, const SpawnResult& result) {
  ++spawn->answers;
  CheckTime(spawn->id.c_str(), spawn->asked, spawn->most);
  const bool ok = result.error.status.ok();
  world_->Trace(spawn->id, " is answered: ", result.error.status.ToString().substr(0, 200));
  if (spawn->answers > spawn->expected) world_->Violate(spawn->id, " is answered ", spawn->answers, " times");
  if (spawn->answers > 1) {
    if (ok != spawn->succeeded) world_->Violate(spawn->id, " is answered in two ways");
    return;
  }
  spawn->succeeded = ok;
  if (!ok) return;
  if (result.procs.size() != spawn->ranks)
    world_->Violate(spawn->id, " has ", result.procs.size(), " processes, wanted ", spawn->ranks);
  for (const ProcDescription& proc : result.procs) {
    spawn->procs.push_back(proc.address);
    const auto life = lives_.find(proc.address);
    if (life == lives_.end() || !life->second.readied) {
      world_->Violate(spawn->id, ": ", proc.address.ToString(), " was never ready");
      continue;
    }
    if (life->second.boot != absl::StrCat(spawn->id, "/", proc.rank))
      world_->Violate(spawn->id, ": rank ", proc.rank, " is ", life->second.boot);
    if (proc.rank < spawn->hosts.size() && life->second.process->host() != spawn->hosts[proc.rank])
      world_->Violate(spawn->id, ": rank ", proc.rank, " is on another host");
    if (proc.pid != life->second.process->pid())
      world_->Violate(spawn->id, ": rank ", proc.rank, " has pid ", proc.pid);
  }
}

Ledger::Stop* Ledger::NewStop() {
  stops_.push_back(std::make_unique<Stop>());
  stops_.back()->asked = world_->Now();
  return stops_.back().get();
}

void Ledger::OnStopped(Stop* stop, const std::vector<FailureEvent>& ends) {
  world_->Trace("a stop is answered: ", ends.size(), " ends");
  CheckTime("a stop", stop->asked, stop->most);
  if (++stop->answers > 1) world_->Violate("a stop is answered twice");
  if (ends.size() != stop->procs.size()) return world_->Violate("a stop tells of ", ends.size(), " ends");
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto life = lives_.find(stop->procs[i]);
    if (life == lives_.end() || life->second.died) continue;
    if (ends[i].kind == FailureKind::kUnreachable && doubted(life->second.process->host())) continue;
    world_->Violate("a stop says that ", stop->procs[i].ToString(),
                    " has ended, which lives: ", ends[i].Summary());
  }
}

void Ledger::CheckSpawns() {
  for (const auto& spawn : spawns_) {
    if (!spawn->excused && spawn->asker->alive() && spawn->answers != spawn->expected)
      world_->Violate(spawn->id, " has ", spawn->answers, " answers");
    if (spawn->succeeded) {
      for (const ProcAddress& address : spawn->procs) {
        if (!spawn->asker->alive() && !lives_.at(address).died)
          world_->Violate(address.ToString(), " has outlived its owner ", spawn->asker->address().ToString());
      }
      continue;
    }
    for (const auto& [address, life] : lives_) {
      if (life.died || life.boot.rfind(spawn->id + "/", 0) != 0) continue;
      if (spawn->answers > 0) world_->Violate(spawn->id, " failed, and left ", address.ToString());
    }
  }
  for (const auto& stop : stops_) {
    if (!stop->excused && stop->asker->alive() && stop->answers != 1)
      world_->Violate("a stop of ", stop->procs.size(), " has no answer");
  }
}

void Ledger::CheckNotices(const Member& receiver) {
  const Life& own = lives_.at(receiver.address());
  std::set<ProcAddress> due;
  // Those that it shares a host with, and those that its session was told of.
  for (const auto& [address, life] : lives_) {
    if (life.process->session() == receiver.session() && life.process->host() == receiver.host() &&
        life.welcomed)
      due.insert(address);
  }
  for (const auto& spawn : spawns_) {
    if (!spawn->succeeded || spawn->asker->session() != receiver.session()) continue;
    for (const ProcAddress& address : spawn->procs) {
      // Nobody elsewhere has heard of what a host that was cut off did for itself.
      const int host = lives_.at(address).process->host();
      if (host != spawn->asker->host() || !doubted(host)) due.insert(address);
    }
  }
  for (const ProcAddress& address : due) {
    const Life& life = lives_.at(address);
    if (!life.died || *life.died <= *own.welcomed || life.process->is_client()) continue;
    // It was unreachable before, and the receiver came later.
    const auto told = told_.find({address, receiver.host()});
    if (told != told_.end() && told->second < *own.welcomed) continue;
    const auto notice = receiver.notices().find(address);
    if (notice == receiver.notices().end() || notice->second.dead == 0)
      world_->Violate(receiver.address().ToString(), " was not told of the death of ", address.ToString());
  }
}

void Ledger::CheckTime(const char* what, absl::Duration asked, absl::Duration most) {
  if (calm_ && world_->Now() - asked > most)
    world_->Violate(what, " took ", absl::FormatDuration(world_->Now() - asked), ", at most ",
                    absl::FormatDuration(most));
}

void Ledger::CheckFrames(const Member& sender) {
  for (const auto& [peer, relayed] : sender.peers()) {
    const Life& life = lives_.at(peer);
    if (life.died || life.process->cut_off() || doubted(sender.host()) || doubted(life.process->host()))
      continue;
    const uint64_t came = life.process->received_from(sender.address()) + sender.returned_of(peer);
    if (sender.sent_to(peer) != came)
      world_->Violate(sender.address().ToString(), " sent ", sender.sent_to(peer), " frames to ",
                      peer.ToString(), ", of which ", came, " came or came back");
  }
}

void Ledger::CheckSettled() {
  CheckSpawns();
  for (const auto& [address, life] : lives_) {
    if (life.died || !life.welcomed || life.process->cut_off()) continue;
    CheckNotices(*life.process);
    CheckFrames(*life.process);
  }
}

void Ledger::CheckEnded(const Member& client) {
  if (!calm_ || !client.welcome()) return;
  const SessionId& id = client.session();
  for (const auto& [address, life] : lives_) {
    const HostId& host = address.host;
    const Id128 part{id.high ^ host.high, id.low ^ host.low};
    const std::string& mark = life.process->mark();
    if (!life.died && (mark == id.ToHex() || mark == part.ToHex()))
      world_->Violate(address.ToString(), " has outlived its client");
  }
}

}  // namespace monarch::sim
