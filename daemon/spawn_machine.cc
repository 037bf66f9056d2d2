#include "daemon/spawn_machine.h"

#include <signal.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

// What a rank that is in `phase` was waited for.
const char* AwaitedAfter(ProcPhase phase) {
  switch (phase) {
    case ProcPhase::kAccepted:
      return "not launched";
    case ProcPhase::kLaunched:
      return "launched, but has not connected";
    case ProcPhase::kReady:
      return "ready, but its launcher has not told of it";
    default:
      return "connected, but has not said that it is ready";
  }
}

// How it ended, said before the kind becomes kStartFailed.
std::string EndingText(const FailureEvent& event) {
  std::string text;
  if (event.kind == FailureKind::kSignalled || event.kind == FailureKind::kOutOfMemory) {
    const char* name = sigabbrev_np(event.code);
    text = absl::StrCat("killed by signal ", event.code,
                        name != nullptr ? absl::StrCat(" (SIG", name, ")") : "");
    if (event.kind == FailureKind::kOutOfMemory) absl::StrAppend(&text, " for lack of memory");
  } else if (event.reason.empty()) {
    return absl::StrCat("exited with status ", event.code, " before it was ready");
  }
  return absl::StrCat(text, text.empty() || event.reason.empty() ? "" : ": ", event.reason);
}

}  // namespace

SpawnMachine::SpawnMachine(size_t ranks, absl::Duration phase_timeout, absl::Duration now)
    : phase_timeout_(phase_timeout), ranks_(ranks) {
  for (Rank& rank : ranks_) rank.since = now;
}

SpawnMachine::Actions SpawnMachine::Advance(size_t index, ProcPhase phase, absl::Duration now) {
  Rank& rank = ranks_[index];
  if (state_ != State::kRunning || rank.gone) return {};
  const bool was_complete = rank.complete();
  if (phase == ProcPhase::kLaunched) rank.launched = true;
  if (phase > rank.phase) {
    rank.phase = phase;
    rank.since = now;
  }
  Actions actions;
  if (!was_complete && rank.complete() && ++complete_ == ranks_.size()) {
    state_ = State::kSucceeded;
    actions.finished = true;
  }
  return actions;
}

void SpawnMachine::RecordDeath(size_t index, const FailureEvent& event) {
  Rank& rank = ranks_[index];
  const bool by_our_kill =
      event.kind == FailureKind::kStopped || (event.kind == FailureKind::kSignalled && event.code == SIGKILL);
  if (rank.failure) {
    // A time-out stays what it is; what the rank had said last is worth having. A death gets its confirmed
    // cause.
    rank.failure->stderr_tail = event.stderr_tail;
    rank.failure->pid = event.pid;
    if (rank.died) {
      rank.failure->code = event.code;
      rank.failure->reason = EndingText(event);
    }
    return;
  }
  if (state_ != State::kRunning && by_our_kill) return;
  FailureEvent failure = event;
  failure.kind = FailureKind::kStartFailed;
  failure.reason = EndingText(event);
  failure.rank = static_cast<uint32_t>(index);
  rank.died = true;
  if (failure.phase.empty()) failure.phase = ProcPhaseName(rank.phase);
  rank.failure = std::move(failure);
}

SpawnMachine::Actions SpawnMachine::OnDied(size_t rank, const FailureEvent& event, absl::Duration now) {
  if (state_ == State::kSucceeded || state_ == State::kFailed || ranks_[rank].gone) return {};
  RecordDeath(rank, event);
  return state_ == State::kRunning ? Unwind(now) : Actions{};
}

SpawnMachine::Actions SpawnMachine::OnGone(size_t rank, const FailureEvent& event, absl::Duration now) {
  if (state_ == State::kSucceeded || state_ == State::kFailed || ranks_[rank].gone) return {};
  RecordDeath(rank, event);
  ranks_[rank].gone = true;
  return state_ == State::kRunning ? Unwind(now) : FinishIfAllGone();
}

SpawnMachine::Actions SpawnMachine::Abandon(const std::string& reason, absl::Duration now) {
  if (state_ != State::kRunning) return {};
  abandoned_ = reason;
  return Unwind(now);
}

SpawnMachine::Actions SpawnMachine::Unwind(absl::Duration now) {
  state_ = State::kUnwinding;
  unwind_deadline_ = now + kUnwindMax;
  Actions actions = FinishIfAllGone();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].gone) actions.kill.push_back(i);
  }
  return actions;
}

SpawnMachine::Actions SpawnMachine::FinishIfAllGone() {
  Actions actions;
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.gone; })) {
    state_ = State::kFailed;
    actions.finished = true;
  }
  return actions;
}

SpawnMachine::Actions SpawnMachine::OnTime(absl::Duration now) {
  if (state_ == State::kUnwinding && now >= unwind_deadline_) {
    state_ = State::kFailed;
    Actions actions;
    actions.finished = true;
    return actions;
  }
  if (state_ != State::kRunning) return {};
  bool late = false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.complete() || now < rank.since + phase_timeout_) continue;
    FailureEvent failure;
    failure.kind = FailureKind::kStartFailed;
    failure.rank = static_cast<uint32_t>(i);
    failure.phase = ProcPhaseName(rank.phase);
    failure.reason =
        absl::StrCat(AwaitedAfter(rank.phase), " within ", absl::ToInt64Milliseconds(phase_timeout_), " ms");
    rank.failure = std::move(failure);
    late = true;
  }
  if (!late) return {};
  timed_out_ = true;
  return Unwind(now);
}

std::optional<absl::Duration> SpawnMachine::NextDeadline() const {
  if (state_ == State::kUnwinding) return unwind_deadline_;
  if (state_ != State::kRunning) return std::nullopt;
  std::optional<absl::Duration> next;
  for (const Rank& rank : ranks_) {
    if (rank.complete()) continue;
    const absl::Duration deadline = rank.since + phase_timeout_;
    if (!next || deadline < *next) next = deadline;
  }
  return next;
}

std::vector<FailureEvent> SpawnMachine::Failures() const {
  std::vector<FailureEvent> failures;
  for (const Rank& rank : ranks_) {
    if (rank.failure) failures.push_back(*rank.failure);
  }
  return failures;
}

}  // namespace monarch
