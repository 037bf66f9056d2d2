#include "client/cpp/runtime/dead_procs.h"

#include "base/clock.h"

namespace monarch {

bool DeadProcs::Add(const ProcAddress& proc, const FailureEvent& event) {
  MutexLock lock(mu_);
  if (!events_.try_emplace(proc, Death{event}).second) return false;
  order_.push_back(proc);
  if (order_.size() > max_) {
    events_.erase(order_.front());
    order_.pop_front();
  }
  return true;
}

void DeadProcs::Update(const ProcAddress& proc, const FailureEvent& event) {
  MutexLock lock(mu_);
  const auto it = events_.find(proc);
  if (it != events_.end()) it->second = {event, true};
  updated_.NotifyAll();
}

std::optional<FailureEvent> DeadProcs::Find(const ProcAddress& proc) const {
  MutexLock lock(mu_);
  const auto it = events_.find(proc);
  if (it == events_.end()) return std::nullopt;
  return it->second.event;
}

std::optional<FailureEvent> DeadProcs::FindDetail(const ProcAddress& proc, absl::Duration timeout) const {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  MutexLock lock(mu_);
  while (true) {
    const auto it = events_.find(proc);
    if (it == events_.end()) return std::nullopt;
    const absl::Duration left = deadline - clock.Now();
    if (it->second.complete || left <= absl::ZeroDuration()) return it->second.event;
    updated_.WaitFor(mu_, left);
  }
}

}  // namespace monarch
