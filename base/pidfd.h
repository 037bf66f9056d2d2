#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "base/scoped_fd.h"

namespace monarch {

// A pidfd, close-on-exec. NotFound: the process is gone. InvalidArgument: no pid (0: not visible from here).
absl::StatusOr<ScopedFd> OpenPidfd(pid_t pid);

}  // namespace monarch
