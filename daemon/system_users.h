#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace monarch {

// What a daemon for all users of a host asks of them. Threading: any thread.

// PermissionDenied, with advice, for a client that it does not serve: root's, unless `allow_root`, and one
// whose user, pid or mount namespace is not the host's (a container's), for its uid and paths mean others.
// `pid` is held by a pidfd.
absl::Status CheckSystemClient(uid_t uid, pid_t pid, bool allow_root);

// Where the launchers of that user's sessions may write: below the run directory of a daemon for all users,
// users/<uid>; else that itself.
std::string LaunchersDirectory(const std::string& run_dir, bool is_system, uid_t uid);

// The directory of one user's logs and sockets below `run_dir`, made if needed: users/<uid>, 0700, theirs.
absl::StatusOr<std::string> PrepareUserDirectory(const std::string& run_dir, uid_t uid);

}  // namespace monarch
