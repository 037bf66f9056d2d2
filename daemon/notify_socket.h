#pragma once

#include <string>

#include "absl/status/status.h"

namespace monarch {

// Tells whoever supervises this process how it is, as sd_notify(3) does: "READY=1", "STOPPING=1". `socket`:
// the value of NOTIFY_SOCKET, a path or an abstract name ("@..."); empty: nobody asked, and nothing happens.
// Threading: any thread.
absl::Status NotifySupervisor(const std::string& socket, const std::string& state);

}  // namespace monarch
