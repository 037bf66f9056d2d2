#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace monarch {

// The one place where errno becomes a Status. `operation` says what was tried on what ("open /run/monarch");
// the message is "<operation>: <strerror>". The code: ENOENT NotFound; EEXIST AlreadyExists; EACCES, EPERM
// PermissionDenied; EINVAL, ENAMETOOLONG InvalidArgument; ENOMEM, EMFILE, ENFILE, ENOSPC, EAGAIN of fork and
// thread creation ResourceExhausted; EPIPE, ECONNRESET, ECONNREFUSED, ENOTCONN Unavailable; ETIMEDOUT
// DeadlineExceeded; ENOSYS, EOPNOTSUPP Unimplemented; else Internal.
absl::Status ErrnoStatus(std::string_view operation, int error);

}  // namespace monarch
