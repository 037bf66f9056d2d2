#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
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
  // More is known now, and that is all.
  void Update(const ProcAddress& proc, const FailureEvent& event);
  std::optional<FailureEvent> Find(const ProcAddress& proc) const;
  // The same, but of one that is there and was not updated yet it waits for that, at most `timeout`.
  std::optional<FailureEvent> FindDetail(const ProcAddress& proc, absl::Duration timeout) const;

 private:
  const size_t max_;
  struct Death {
    FailureEvent event;
    bool complete = false;
  };
  mutable Mutex mu_;
  mutable CondVar updated_;
  absl::flat_hash_map<ProcAddress, Death> events_ ABSL_GUARDED_BY(mu_);
  std::deque<ProcAddress> order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
