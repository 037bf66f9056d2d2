#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace monarch {

// Knows whether it stands in a forked child of the process that made it. There the threads are gone, locks
// may be held for ever, and the shared pages are the parent's: nothing may be touched. Threading: immutable.
class ForkGuard {
 public:
  ForkGuard() : generation_(Generation()) {}
  bool in_child() const { return Generation() != generation_; }
  // FailedPrecondition in a child.
  absl::Status Check() const;

 private:
  static uint64_t Generation();
  const uint64_t generation_;
};

}  // namespace monarch
