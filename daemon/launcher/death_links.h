#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "daemon/launcher/exit_status.h"

namespace monarch {

// Decides which deaths the launcher tells its session's processes itself, and whom. Pure.
// Told is once, what is known to be a failure, to those that share a ring with the dead. A process that was
// asked to stop, or one that left with status 0, is the daemon's to tell: it knows why. Threading: confined
// to its caller.
class DeathLinks {
 public:
  // Ring `bit` of `proc`'s doorbell is the one with the dead.
  struct Ring {
    ProcAddress proc;
    uint32_t bit = 0;
    bool operator==(const Ring&) const = default;
  };

  void Add(const ProcAddress& proc);
  // Nothing unless both are known: one of them has ended meanwhile.
  void Link(const ProcAddress& a, uint32_t bit_in_a, const ProcAddress& b, uint32_t bit_in_b);
  void SetStopping(const ProcAddress& proc);
  // The session ends.
  void SetAllStopping() { all_stopping_ = true; }
  // Whom to tell now, if it is to be told.
  std::optional<std::vector<Ring>> OnDeath(const ProcAddress& proc, const ExitStatus& cause);
  void Forget(const ProcAddress& proc);

 private:
  struct Entry {
    std::vector<Ring> rings;  // of the others
    bool stopping = false;
    bool told = false;
  };
  absl::flat_hash_map<ProcAddress, Entry> entries_;
  bool all_stopping_ = false;
};

}  // namespace monarch
