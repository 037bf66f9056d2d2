#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "client/cpp/ctl/daemon_query.h"
#include "proto/monarch/v1/event.pb.h"

namespace monarch::ctl {

// One event of one daemon.
struct DaemonEvent {
  const DaemonPlace* place;
  v1::WatchResponse event;
};

// What the daemons keep in their event logs, from the oldest on; of all daemons, by time. One that is dead or
// hung costs the others nothing: it is marked in `answers`, one for each of `places`, without status, tree
// and failures.
struct KeptEvents {
  std::vector<DaemonEvent> events;
  std::vector<Snapshot> answers;
};
KeptEvents ReadEvents(const std::vector<DaemonPlace>& places, absl::Duration timeout);

// Calls `on_event` for each event that comes behind those of `kept`, from any of the daemons that answered,
// on the calling thread, until all of them have ended. An error other than a daemon's end
// is in `kept->answers`.
void FollowEvents(KeptEvents* kept, absl::FunctionRef<void(const DaemonEvent&)> on_event);

}  // namespace monarch::ctl
