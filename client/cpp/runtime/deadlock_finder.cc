#include "client/cpp/runtime/deadlock_finder.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

bool Owes(const DeadlockFinder::Waiting& waiting, const ActorAddress& callee, uint32_t rank) {
  return std::any_of(waiting.owed.begin(), waiting.owed.end(),
                     [&](const CallTarget& target) { return target.actor == callee && target.rank == rank; });
}

std::string Label(const std::string& name, const std::string& endpoint) {
  return endpoint.empty() ? name : absl::StrCat(name, ".", endpoint);
}

// The call that fails: a queued one if there is any. Whoever found the cycle, wherever its path begins,
// decides alike.
size_t Victim(const std::vector<WaitStep>& cycle) {
  const auto key = [](const WaitStep& step) {
    return std::tuple(step.queued.has_value(), step.actor, step.call, step.rank);
  };
  const auto less = [&](const WaitStep& a, const WaitStep& b) { return key(a) < key(b); };
  return static_cast<size_t>(std::max_element(cycle.begin(), cycle.end(), less) - cycle.begin());
}

// From what the victim's callee is in, along the waits, to what the victim asked for.
std::vector<std::string> Describe(const std::vector<WaitStep>& cycle, size_t victim) {
  std::vector<std::string> labels;
  for (size_t i = 1; i <= cycle.size(); ++i) {
    const WaitStep& before = cycle[(victim + i - 1) % cycle.size()];
    const WaitStep& step = cycle[(victim + i) % cycle.size()];
    std::string label = Label(step.name, step.endpoint);
    if (i > 1 && before.queued.has_value()) {
      label = absl::StrCat(Label(step.name, *before.queued), " (queued behind ", label, ")");
    }
    labels.push_back(std::move(label));
  }
  const WaitStep& callee = cycle[(victim + 1) % cycle.size()];
  labels.push_back(Label(callee.name, cycle[victim].queued.value_or(callee.endpoint)));
  return labels;
}

}  // namespace

void DeadlockFinder::Start(uint64_t actor) {
  const std::optional<Waiting> waiting = world_->WaitOf(actor);
  if (!waiting.has_value()) return;
  Probe probe;
  probe.id = ++last_search_;
  Extend(probe, actor, *waiting);
}

void DeadlockFinder::Handle(Probe probe) {
  switch (probe.phase) {
    case Probe::Phase::kSearch:
      Search(std::move(probe));
      return;
    case Probe::Phase::kConfirm:
      Confirm(std::move(probe));
      return;
    case Probe::Phase::kVerdict:
      Judge(probe);
      return;
  }
}

void DeadlockFinder::Extend(const Probe& probe, uint64_t actor, const Waiting& waiting) {
  if (probe.path.size() >= steps_max_) return;
  for (const CallTarget& target : waiting.owed) {
    Probe next = probe;
    next.path.push_back({{self_, actor},
                         waiting.wait,
                         waiting.name,
                         waiting.endpoint,
                         target.actor,
                         waiting.call,
                         target.rank,
                         std::nullopt});
    world_->Send(target.actor.proc, next);
  }
}

void DeadlockFinder::Search(Probe probe) {
  const WaitStep& first = probe.path.front();
  WaitStep& last = probe.path.back();
  const uint64_t actor = last.callee.actor;
  if (last.callee.proc != self_) return;
  const std::optional<Waiting> waiting = world_->WaitOf(actor);
  if (!waiting.has_value()) return;
  last.queued = world_->Queued(actor, last.actor.proc, last.call);
  if (!last.queued.has_value() && world_->OthersAnswer(actor)) return;
  if (last.callee == first.actor) {
    if (waiting->wait != first.wait) return;
    probe.phase = Probe::Phase::kConfirm;
    probe.at = probe.path.size() - 1;
    world_->Send(last.actor.proc, probe);
    return;
  }
  if (world_->Visit(actor, waiting->wait, first.actor.proc, probe.id)) Extend(probe, actor, *waiting);
}

void DeadlockFinder::Confirm(Probe probe) {
  const WaitStep& step = probe.path[probe.at];
  if (step.actor.proc != self_) return;
  const std::optional<Waiting> waiting = world_->WaitOf(step.actor.actor);
  if (!waiting.has_value() || waiting->wait != step.wait || waiting->call != step.call ||
      !Owes(*waiting, step.callee, step.rank)) {
    return;
  }
  if (probe.at > 0) {
    --probe.at;
    world_->Send(probe.path[probe.at].actor.proc, probe);
    return;
  }
  probe.phase = Probe::Phase::kVerdict;
  probe.at = Victim(probe.path);
  const WaitStep& victim = probe.path[probe.at];
  world_->Send(victim.queued.has_value() ? victim.callee.proc : victim.actor.proc, probe);
}

void DeadlockFinder::Judge(const Probe& probe) {
  const WaitStep& victim = probe.path[probe.at];
  // Whose wait must still be on: another verdict may have freed it.
  const WaitStep& held = victim.queued.has_value() ? probe.path[(probe.at + 1) % probe.path.size()] : victim;
  if (held.actor.proc != self_) return;
  const std::optional<Waiting> waiting = world_->WaitOf(held.actor.actor);
  if (!waiting.has_value() || waiting->wait != held.wait) return;
  const std::vector<std::string> cycle = Describe(probe.path, probe.at);
  if (victim.queued.has_value()) {
    world_->Refuse(held.actor.actor, victim.actor.proc, victim.call, cycle);
  } else {
    world_->GiveUp(victim.call, {victim.callee, victim.rank}, cycle);
  }
}

}  // namespace monarch
