#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"

namespace monarch {

// Which actors have been in one handler for longer than their threshold, and when to look at them again.
// Pure: what was seen goes in with the time. It asks for no more looks than it takes: one for each threshold
// while all are idle or hung, one at the moment at which a handler that runs becomes too old. Threading: as
// its fields.
class HangMachine {
 public:
  static constexpr absl::Duration kThresholdMin = absl::Milliseconds(100);

  struct Seen {
    ActorAddress actor;
    absl::Duration began;  // on the clock of `now`; the handler is known by it
  };
  // A handler that was told to be hung, and has ended.
  struct Recovery {
    ActorAddress actor;
    absl::Duration began;
    absl::Duration took;
  };
  struct Findings {
    std::vector<ActorAddress> overdue;  // not told yet: look closer, then say Told
    std::vector<Recovery> recovered;
    std::optional<absl::Duration> next;  // none: nothing is watched
  };

  // Less than kThresholdMin counts as that.
  void Watch(const ActorAddress& actor, absl::Duration threshold);
  void Forget(const ActorAddress& actor);
  void ForgetProc(const ProcAddress& proc);
  bool empty() const { return watched_.empty(); }
  // The processes of those that are watched, in order.
  std::vector<ProcAddress> Procs() const;
  std::optional<absl::Duration> ThresholdOf(const ActorAddress& actor) const;

  // All that is at work in the processes, each actor at most once.
  Findings Look(const std::vector<Seen>& at_work, absl::Duration now);
  // `actor` is hung in the handler that began then. False: that was told before, or it is not watched.
  bool Told(const ActorAddress& actor, absl::Duration began);
  bool IsTold(const ActorAddress& actor, absl::Duration began) const;

 private:
  struct Watched {
    absl::Duration threshold;
    std::optional<absl::Duration> told;  // when that handler began
  };
  std::map<ActorAddress, Watched> watched_;
};

}  // namespace monarch
