#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "daemon/proc_table.h"
#include "daemon/session_types.h"

namespace monarch {

// The actors of which the processes of one session have told, for listings, and to know what goes with a
// process, whose record counts them (`actors_up`). One that failed stays listed until its process ends or too
// many others have failed. Threading: confined to the control loop.
class ActorList {
 public:
  const std::map<ActorAddress, ActorRecord>& all() const { return actors_; }
  const ActorRecord* Find(const ActorAddress& actor) const;

  // `record`: of its process. One that is there has these particulars from now on.
  void Put(ProcRecord& record, ActorRecord actor);
  // Nothing if it is not there.
  void Remove(ProcRecord& record, const ActorAddress& actor);
  // Nothing if it is not there, or has failed before. Gives the one that is listed no more for it.
  std::optional<ActorAddress> MarkFailed(ProcTable& procs, const ActorAddress& actor);
  // Those that have not failed; which they were.
  std::vector<ActorAddress> RemoveLivingOf(ProcRecord& record);
  // All of a process that has ended; those that had not failed.
  std::vector<ActorRecord> TakeOf(const ProcAddress& proc);

 private:
  static constexpr size_t kFailedMax = 256;

  std::map<ActorAddress, ActorRecord> actors_;
  std::deque<ActorAddress> failed_;  // the oldest first; some may be gone
};

}  // namespace monarch
