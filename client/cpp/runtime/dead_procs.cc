#include "client/cpp/runtime/dead_procs.h"

namespace monarch {

bool DeadProcs::Add(const ProcAddress& proc, const FailureEvent& event) {
  MutexLock lock(mu_);
  if (!events_.emplace(proc, event).second) return false;
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
  if (it != events_.end()) it->second = event;
}

std::optional<FailureEvent> DeadProcs::Find(const ProcAddress& proc) const {
  MutexLock lock(mu_);
  const auto it = events_.find(proc);
  if (it == events_.end()) return std::nullopt;
  return it->second;
}

}  // namespace monarch
