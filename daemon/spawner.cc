#include "daemon/spawner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

// The message travels in a header of the control plane, which is bounded: a few ranks tell the story.
constexpr size_t kRanksInMessageMax = 3;
constexpr size_t kStderrInMessageMax = 400;

std::string LastPart(const std::string& text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  const size_t line = text.find('\n', text.size() - bytes_max);
  return text.substr(line == std::string::npos ? text.size() - bytes_max : line + 1);
}

std::string RankText(const FailureEvent& failure) {
  std::string text = absl::StrCat("rank ", failure.rank);
  if (!failure.rank_label.empty()) absl::StrAppend(&text, " ", failure.rank_label);
  absl::StrAppend(&text, " (phase ", failure.phase, "): ", failure.reason);
  const std::string tail = LastPart(failure.stderr_tail, kStderrInMessageMax);
  if (!tail.empty()) absl::StrAppend(&text, "; its stderr ended with:\n", tail);
  return text;
}

}  // namespace

void Spawner::Spawn(SpawnRequest request, absl::Duration now, Reply reply) {
  const auto known = spawns_.find(request.request_id);
  if (known != spawns_.end()) {
    Entry& spawn = known->second;
    if (spawn.request.mesh != request.mesh || spawn.request.shape != request.shape) {
      SpawnResult refused;
      refused.error.status = absl::AlreadyExistsError(
          absl::StrCat("spawn: request id ", request.request_id, " was used for another mesh"));
      return reply(refused);
    }
    if (spawn.result) return reply(*spawn.result);
    spawn.replies.push_back(std::move(reply));
    return;
  }
  const size_t ranks = request.count();
  const absl::Duration timeout =
      request.phase_timeout > absl::ZeroDuration() ? request.phase_timeout : default_phase_timeout_;
  const std::string id = request.request_id;
  Entry& spawn = spawns_.emplace(id, Entry{std::move(request), SpawnMachine(ranks, timeout, now), {}, {}, {}})
                     .first->second;
  spawn.replies.push_back(std::move(reply));
  for (size_t i = 0; i < ranks; ++i) {
    absl::StatusOr<ProcDescription> started = host_->StartProc(spawn.request, i);
    if (started.ok()) {
      spawn.procs.push_back(*std::move(started));
      continue;
    }
    // Nothing of the ranks from here on exists.
    ProcDescription nobody;
    nobody.rank = spawn.request.RankOf(i);
    nobody.mesh = spawn.request.mesh;
    nobody.rank_label = spawn.request.shape.PointLabel(nobody.rank);
    spawn.procs.push_back(nobody);
    FailureEvent event;
    event.kind = FailureKind::kStartFailed;
    event.reason = std::string(started.status().message());
    Execute(&spawn, spawn.machine.OnGone(i, event, now));
    FailureEvent never;
    never.kind = FailureKind::kStopped;
    for (size_t j = i + 1; j < ranks; ++j) {
      spawn.procs.push_back({});
      Execute(&spawn, spawn.machine.OnGone(j, never, now));
    }
    return;
  }
}

Spawner::Entry* Spawner::FindRunning(const ProcRecord& record) {
  const auto found = spawns_.find(record.spawn_id);
  if (found == spawns_.end() || found->second.result) return nullptr;
  const std::vector<ProcDescription>& procs = found->second.procs;
  const bool is_its =
      record.spawn_index < procs.size() && procs[record.spawn_index].address == record.description.address;
  return is_its ? &found->second : nullptr;
}

void Spawner::OnLaunched(const ProcRecord& record, absl::Duration now) {
  Entry* spawn = FindRunning(record);
  if (spawn == nullptr) return;
  spawn->procs[record.spawn_index].pid = record.description.pid;
  Execute(spawn, spawn->machine.OnLaunched(record.spawn_index, now));
}

void Spawner::OnConnected(const ProcRecord& record, absl::Duration now) {
  if (Entry* spawn = FindRunning(record)) Execute(spawn, spawn->machine.OnConnected(record.spawn_index, now));
}

void Spawner::OnReady(const ProcRecord& record, absl::Duration now) {
  if (Entry* spawn = FindRunning(record)) Execute(spawn, spawn->machine.OnReady(record.spawn_index, now));
}

void Spawner::OnDied(const ProcRecord& record, const FailureEvent& event, absl::Duration now) {
  if (Entry* spawn = FindRunning(record)) {
    Execute(spawn, spawn->machine.OnDied(record.spawn_index, event, now));
  }
}

void Spawner::OnGone(const ProcRecord& record, const FailureEvent& event, absl::Duration now) {
  if (Entry* spawn = FindRunning(record)) {
    Execute(spawn, spawn->machine.OnGone(record.spawn_index, event, now));
  }
}

void Spawner::AbandonOwnedBy(const ProcAddress& owner, const std::string& reason, absl::Duration now) {
  for (auto& [id, spawn] : spawns_) {
    if (!spawn.result && spawn.request.owner.proc == owner)
      Execute(&spawn, spawn.machine.Abandon(reason, now));
  }
}

void Spawner::AbandonAll(const std::string& reason, absl::Duration now) {
  for (auto& [id, spawn] : spawns_) {
    if (!spawn.result) Execute(&spawn, spawn.machine.Abandon(reason, now));
  }
}

void Spawner::OnTime(absl::Duration now) {
  for (auto& [id, spawn] : spawns_) {
    if (!spawn.result) Execute(&spawn, spawn.machine.OnTime(now));
  }
}

std::optional<absl::Duration> Spawner::NextDeadline() const {
  std::optional<absl::Duration> next;
  for (const auto& [id, spawn] : spawns_) {
    if (spawn.result) continue;
    const std::optional<absl::Duration> deadline = spawn.machine.NextDeadline();
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  return next;
}

void Spawner::Execute(Entry* spawn, const SpawnMachine::Actions& actions) {
  for (const size_t index : actions.kill) {
    // A rank that was not started yet when another could not be: there is nothing to kill.
    if (index < spawn->procs.size() && spawn->procs[index].address.proc != 0) {
      host_->KillProc(spawn->procs[index].address.proc);
    }
  }
  if (actions.finished) Finish(spawn);
}

void Spawner::AddFinished(SpawnRequest request, std::vector<ProcDescription> procs) {
  const std::string id = request.request_id;
  const size_t ranks = request.count();
  for (ProcDescription& proc : procs) proc.phase = ProcPhase::kReady;
  SpawnResult result{{}, procs};
  spawns_.emplace(id, Entry{std::move(request),
                            SpawnMachine(ranks, default_phase_timeout_, absl::ZeroDuration()),
                            std::move(procs),
                            {},
                            std::move(result)});
  finished_.push_back(id);
}

void Spawner::Finish(Entry* spawn) {
  spawn->result = ResultOf(*spawn);
  if (spawn->result->error.status.ok()) host_->OnSpawned(spawn->request, spawn->procs);
  spawn->request.specs.clear();
  std::vector<Reply> replies = std::exchange(spawn->replies, {});
  for (Reply& reply : replies) reply(*spawn->result);
  finished_.push_back(spawn->request.request_id);
  // Erased by the next spawn's end at the earliest: callers hold `spawn` until they return.
  if (finished_.size() > kResultsMax) {
    spawns_.erase(finished_.front());
    finished_.pop_front();
  }
}

SpawnResult Spawner::ResultOf(const Entry& spawn) const {
  SpawnResult result;
  if (spawn.machine.state() == SpawnMachine::State::kSucceeded) {
    result.procs = spawn.procs;
    for (ProcDescription& proc : result.procs) proc.phase = ProcPhase::kReady;
    return result;
  }
  std::vector<FailureEvent> failures = spawn.machine.Failures();
  for (FailureEvent& failure : failures) {
    const ProcDescription& proc = spawn.procs[failure.rank];
    failure.mesh = spawn.request.mesh;
    failure.rank = spawn.request.RankOf(failure.rank);
    failure.rank_label = proc.rank_label;
    failure.actor = ActorAddress{proc.address, kAgentActor};
    if (failure.pid == 0) failure.pid = proc.pid;
  }
  std::string text = absl::StrCat("spawn mesh '", spawn.request.mesh, "': ");
  if (failures.empty()) {
    absl::StrAppend(&text, "abandoned: ", spawn.machine.abandoned_reason());
  } else {
    absl::StrAppend(&text, failures.size(), " of ", spawn.procs.size(),
                    " processes did not start; nothing was left running");
  }
  for (size_t i = 0; i < std::min(failures.size(), kRanksInMessageMax); ++i) {
    absl::StrAppend(&text, "\n", RankText(failures[i]));
  }
  const absl::StatusCode code = failures.empty()            ? absl::StatusCode::kAborted
                                : spawn.machine.timed_out() ? absl::StatusCode::kDeadlineExceeded
                                                            : absl::StatusCode::kFailedPrecondition;
  result.error.status = absl::Status(code, text);
  result.error.failures = std::move(failures);
  return result;
}

}  // namespace monarch
