#include "daemon/spread_spawns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {

void SpreadSpawns::Spawn(SpawnRequest request, Reply reply) {
  const std::string id = request.request_id;
  if (const auto known = spawns_.find(id); known != spawns_.end()) {
    if (known->second.result) return reply(*known->second.result);
    known->second.replies.push_back(std::move(reply));
    return;
  }
  std::map<HostId, SpawnRequest> parts;
  for (size_t i = 0; i < request.hosts.size(); ++i) {
    SpawnRequest& part = parts[request.hosts[i]];
    part.ranks.push_back(request.RankOf(i));
    if (request.specs.size() == 1 && part.specs.empty()) part.specs = request.specs;
    if (request.specs.size() != 1) part.specs.push_back(request.specs[i]);
  }
  Entry& spawn = spawns_[id];
  spawn.mesh = request.mesh;
  spawn.ranks = request.hosts.size();
  spawn.missing = parts.size();
  spawn.replies.push_back(std::move(reply));
  for (auto& [host, part] : parts) {
    part.request_id = absl::StrCat(id, "@", host.ToHex().substr(0, 8));
    part.mesh = request.mesh;
    part.shape = request.shape;
    part.incarnation = request.incarnation;
    part.owner = request.owner;
    part.phase_timeout = request.phase_timeout;
    hosts_->SpawnOn(host, std::move(part), [this, id](const SpawnResult& result) { OnPart(id, result); });
  }
}

void SpreadSpawns::OnPart(const std::string& id, const SpawnResult& part) {
  Entry& spawn = spawns_.at(id);
  spawn.procs.insert(spawn.procs.end(), part.procs.begin(), part.procs.end());
  if (!part.error.status.ok()) {
    std::vector<FailureEvent> failures = std::move(spawn.error.failures);
    failures.insert(failures.end(), part.error.failures.begin(), part.error.failures.end());
    // The first one's text; of the others what failed.
    if (spawn.error.status.ok()) spawn.error = part.error;
    spawn.error.failures = std::move(failures);
  }
  if (--spawn.missing > 0) return;
  if (spawn.error.status.ok()) return Finish(id);
  std::vector<ProcAddress> vain;
  for (const ProcDescription& proc : spawn.procs) vain.push_back(proc.address);
  spawn.procs.clear();
  if (vain.empty()) return Finish(id);
  hosts_->KillSpawned(vain, [this, id] { Finish(id); });
}

void SpreadSpawns::Finish(const std::string& id) {
  Entry& spawn = spawns_.at(id);
  const auto by_rank = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  std::sort(spawn.procs.begin(), spawn.procs.end(), by_rank);
  std::sort(spawn.error.failures.begin(), spawn.error.failures.end(), by_rank);
  spawn.result = SpawnResult{std::move(spawn.error), std::move(spawn.procs)};
  std::vector<Reply> replies = std::exchange(spawn.replies, {});
  const SpawnResult result = *spawn.result;
  finished_.push_back(id);
  if (finished_.size() > kResultsMax) {
    spawns_.erase(finished_.front());
    finished_.pop_front();
  }
  for (Reply& reply : replies) reply(result);
}

}  // namespace monarch
