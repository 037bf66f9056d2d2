#include "base/pidfd.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"

namespace monarch {

absl::StatusOr<ScopedFd> OpenPidfd(pid_t pid) {
  if (pid <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("open pidfd of process ", pid, ": not visible here"));
  }
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno == ESRCH) {
    return absl::NotFoundError(absl::StrCat("open pidfd of process ", pid, ": it is gone"));
  }
  if (fd < 0) return ErrnoStatus(absl::StrCat("open pidfd of process ", pid), errno);
  return ScopedFd(fd);
}

}  // namespace monarch
