#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/daemon_context.h"
#include "daemon/session_manager.h"

namespace monarch {

// How much is in use of the limits that this daemon sees, by name: of what each holds for one process or
// session, the most. Looks at files; on the control loop.
std::map<std::string, uint64_t> LimitUses(const DaemonContext& context, const SessionManager& sessions);

// Open fds of this process, and how many it may have.
struct OpenFiles {
  uint64_t used = 0;
  uint64_t most = 0;
};
OpenFiles CountOpenFiles();

}  // namespace monarch
