#include "daemon/hang_watch.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "daemon/activity_probe.h"

namespace monarch {
namespace {

// Many handlers of a process may end together, and a process may say so as often as it likes.
constexpr absl::Duration kEndedDelay = absl::Milliseconds(2);

}  // namespace

HangWatch::HangWatch(EventLoop* loop, ProcTable* procs, Report report)
    : loop_(loop), procs_(procs), report_(std::move(report)), alive_(std::make_shared<bool>(true)) {}

HangWatch::~HangWatch() {
  if (timer_ != 0) loop_->Cancel(timer_);
}

void HangWatch::Watch(const ActorAddress& actor, absl::Duration threshold) {
  if (threshold <= absl::ZeroDuration()) return;
  machine_.Watch(actor, threshold);
  if (auto told = adopted_.extract(actor); !told.empty()) {
    machine_.Told(actor, told.mapped().first);
    methods_[actor] = std::move(told.mapped().second);
  }
  // It may be in its `__init__`.
  LookAt(loop_->Now() + *machine_.ThresholdOf(actor));
}

void HangWatch::Adopt(const ActorAddress& actor, absl::Duration began, std::string method) {
  adopted_[actor] = {began, std::move(method)};
}

void HangWatch::Forget(const ActorAddress& actor) {
  adopted_.erase(actor);
  machine_.Forget(actor);
  methods_.erase(actor);
}

void HangWatch::ForgetProc(const ProcAddress& proc) {
  machine_.ForgetProc(proc);
  const ActorAddress first{proc, 0}, last{proc, std::numeric_limits<uint64_t>::max()};
  methods_.erase(methods_.lower_bound(first), methods_.upper_bound(last));
  adopted_.erase(adopted_.lower_bound(first), adopted_.upper_bound(last));
}

void HangWatch::OnHandlerEnded() {
  if (!methods_.empty()) LookAt(loop_->Now() + kEndedDelay);
}

void HangWatch::LookAt(absl::Duration when) {
  if (timer_ != 0) {
    if (timer_at_ <= when) return;
    loop_->Cancel(timer_);
  }
  timer_at_ = when;
  timer_ = loop_->RunAfter(when - loop_->Now(), [this] {
    timer_ = 0;
    Look();
  });
}

void HangWatch::Look() {
  struct Shown {
    Doorbell pages;
    std::vector<Activity> activities;
  };
  std::map<ProcAddress, Shown> shown;
  std::vector<HangMachine::Seen> seen;
  for (const ProcAddress& proc : machine_.Procs()) {
    const ProcRecord* record = procs_->Find(proc);
    if (record == nullptr) continue;
    absl::StatusOr<Doorbell> pages = PagesOf(*record);
    if (!pages.ok()) continue;
    std::vector<Activity> activities = pages->Activities();
    for (const Activity& activity : activities) {
      if (activity.began_ns != 0)
        seen.push_back({ActorAddress{proc, activity.actor}, absl::Nanoseconds(activity.began_ns)});
    }
    shown.emplace(proc, Shown{*std::move(pages), std::move(activities)});
  }
  const HangMachine::Findings findings = machine_.Look(seen, loop_->Now());
  for (const HangMachine::Recovery& recovery : findings.recovered) {
    Hang hang;
    hang.method = std::exchange(methods_[recovery.actor], "");
    methods_.erase(recovery.actor);
    hang.age = recovery.took;
    hang.recovered = true;
    report_(recovery.actor, hang, recovery.began);
  }
  // So that their end is told, and need not be looked for.
  const std::set<ActorAddress> overdue(findings.overdue.begin(), findings.overdue.end());
  for (auto& [proc, one] : shown) {
    for (const Activity& activity : one.activities) {
      const ActorAddress actor{proc, activity.actor};
      if (overdue.contains(actor) || methods_.contains(actor)) one.pages.WatchHandler(activity.word);
    }
  }
  if (!findings.overdue.empty()) LookCloser(findings.overdue);
  if (findings.next) LookAt(*findings.next);
}

void HangWatch::LookCloser(const std::vector<ActorAddress>& overdue) {
  std::set<ProcAddress> procs;
  for (const ActorAddress& actor : overdue) procs.insert(actor.proc);
  std::vector<const ProcRecord*> records;
  for (const ProcAddress& proc : procs) {
    if (const ProcRecord* record = procs_->Find(proc)) records.push_back(record);
  }
  ProbeActivities(loop_, records, HangMachine::kThresholdMin,
                  [this, alive = std::weak_ptr<bool>(alive_)](const std::vector<ActorActivity>& found) {
                    if (!alive.lock()) return;
                    for (const ActorActivity& one : found) Tell(one);
                  });
}

void HangWatch::Tell(const ActorActivity& found) {
  const std::optional<absl::Duration> threshold = machine_.ThresholdOf(found.actor);
  if (!threshold || found.age < *threshold || !machine_.Told(found.actor, found.began)) return;
  methods_[found.actor] = found.method;
  Hang hang;
  hang.method = found.method;
  hang.age = found.age;
  hang.state = ActivityStateName(found.state);
  hang.wait_channel = found.wait_channel;
  report_(found.actor, hang, found.began);
  // It may have ended since, without being watched.
  OnHandlerEnded();
}

}  // namespace monarch
