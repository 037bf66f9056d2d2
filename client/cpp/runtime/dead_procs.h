#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace monarch {

// Procs known to be dead, and why; bounded, the oldest are forgotten.
// Threading: thread-safe (mu_).
class DeadProcs {
 public:
  explicit DeadProcs(size_t max) : max_(max) {}
  // False: known before; then nothing changes.
  bool Add(const ProcAddress& proc, const FailureEvent& event);
  // More is known now.
  void Update(const ProcAddress& proc, const FailureEvent& event);
  std::optional<FailureEvent> Find(const ProcAddress& proc) const;

 private:
  const size_t max_;
  mutable Mutex mu_;
  absl::flat_hash_map<ProcAddress, FailureEvent> events_ ABSL_GUARDED_BY(mu_);
  std::deque<ProcAddress> order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
