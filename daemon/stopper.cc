#include "daemon/stopper.h"

#include <signal.h>

#include <utility>

namespace monarch {

void Stopper::Do(ProcRecord& record, StopMachine::Action action, absl::Duration grace) {
  switch (action) {
    case StopMachine::Action::kNone:
      return;
    case StopMachine::Action::kAsk:
      return host_->SendStop(record, grace);
    case StopMachine::Action::kTerm:
      return host_->SendSignal(record, SIGTERM);
    case StopMachine::Action::kKill:
      return host_->SendSignal(record, SIGKILL);
  }
}

void Stopper::Stop(ProcRecord& record, const StopMachine::Plan& plan, const std::string& reason,
                   absl::Duration now) {
  if (record.is_client) return;
  if (record.stop) return Do(record, record.stop->Tighten(plan, now), plan.grace);
  record.stop.emplace(plan, now);
  if (record.alive()) {
    record.stop_reason = reason.empty() ? "stopped" : reason;
    record.description.phase = ProcPhase::kStopping;
    host_->OnStopping(record);
  }
  Do(record, record.stop->Begin(now), plan.grace);
}

void Stopper::StopAll(ProcTable& procs, const StopRequest& request, absl::Duration now, Reply reply) {
  Waiting waiting{request.procs, {}, 0, std::move(reply)};
  for (const ProcAddress& address : request.procs) {
    ProcRecord* record = procs.Find(address);
    if (record != nullptr && !record->is_client) {
      StopMachine::Plan plan;
      plan.can_ask = record->description.phase == ProcPhase::kReady && record->connection != nullptr;
      plan.grace = request.grace;
      plan.kill_after = request.kill_after;
      Stop(*record, plan, request.reason, now);
      waiting.ends.emplace_back();
      ++waiting.missing;
      continue;
    }
    FailureEvent end;
    if (const FailureEvent* known = procs.EndOf(address)) {
      end = *known;
    } else {
      end.kind = FailureKind::kStopped;
      end.actor = ActorAddress{address, kAgentActor};
      end.reason = "was not running";
    }
    waiting.ends.emplace_back(std::move(end));
  }
  waiting_.push_back(std::move(waiting));
  OnGone(ProcAddress{}, FailureEvent{});
}

void Stopper::OnGone(const ProcAddress& proc, const FailureEvent& event) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    for (size_t i = 0; i < it->procs.size(); ++i) {
      if (it->procs[i] != proc || it->ends[i]) continue;
      it->ends[i] = event;
      --it->missing;
    }
    if (it->missing > 0) {
      ++it;
      continue;
    }
    std::vector<FailureEvent> ends;
    for (std::optional<FailureEvent>& end : it->ends) ends.push_back(*std::move(end));
    Reply reply = std::move(it->reply);
    it = waiting_.erase(it);
    reply(std::move(ends));
  }
}

void Stopper::OnTime(ProcTable& procs, absl::Duration now) {
  for (auto& [proc, record] : procs.all()) {
    if (record.stop) Do(record, record.stop->OnTime(now), absl::ZeroDuration());
  }
}

std::optional<absl::Duration> Stopper::NextDeadline(const ProcTable& procs) const {
  std::optional<absl::Duration> next;
  for (const auto& [proc, record] : procs.all()) {
    if (!record.stop) continue;
    const absl::Duration deadline = record.stop->NextDeadline();
    if (!next || deadline < *next) next = deadline;
  }
  return next;
}

}  // namespace monarch
