#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "base/scoped_fd.h"
#include "daemon/proc_table.h"

namespace monarch {

// Takes doorbell, bell and segment out of the first three of a hello's fds. Hostile input: InvalidArgument or
// FailedPrecondition unless the memfds are sealed and of sensible size and the bell is an eventfd. An
// unsealed one would let its owner kill whoever maps it.
absl::StatusOr<SharedFds> TakeSharedFds(std::vector<ScopedFd>* fds);

}  // namespace monarch
