#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/ctl/daemon_finder.h"
#include "proto/monarch/v1/admin.pb.h"

namespace monarch::ctl {

// What one daemon said about itself. Plain data.
// Threading: as its fields.
struct Snapshot {
  DaemonPlace place;
  absl::Status answer;  // first thing that went wrong; those below are set only if it is OK
  v1::GetStatusResponse status;
  v1::GetTreeResponse tree;          // only if asked for
  v1::GetFailuresResponse failures;  // only if asked for
  bool ended = false;                // it left its failures in a file; that is all there is
};

struct QueryOptions {
  absl::Duration timeout = absl::Seconds(5);  // for all of it
  bool with_tree = false;
  bool with_failures = false;
};

// Asks all of them at once. One that is dead or hung costs the others nothing: it is marked with Unavailable
// or DeadlineExceeded when the time is up.
std::vector<Snapshot> QueryDaemons(const std::vector<DaemonPlace>& places, const QueryOptions& options);

// The exit code that these answers stand for (exit_code.h).
int ExitCodeFor(const std::vector<Snapshot>& snapshots);

}  // namespace monarch::ctl
