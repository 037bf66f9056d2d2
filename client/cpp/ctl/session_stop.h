#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/ctl/daemon_query.h"
#include "proto/monarch/v1/admin.pb.h"

namespace monarch::ctl {

// A session and the daemon that has it. Both are the snapshots'.
struct FoundSession {
  const Snapshot* daemon = nullptr;
  const v1::SessionInfo* session = nullptr;
};

// The one whose id begins with `id`. NotFound; InvalidArgument, which lists them, if there are several.
absl::StatusOr<FoundSession> FindSession(const std::string& id, const std::vector<Snapshot>& snapshots);

// Ends it, and waits for that. `grace`: what its processes have before they are killed; zero: what its daemon
// gives them. The call takes at most that and a few seconds for what is left on other hosts.
absl::StatusOr<v1::StopSessionResponse> StopSession(const FoundSession& found, absl::Duration grace);

}  // namespace monarch::ctl
