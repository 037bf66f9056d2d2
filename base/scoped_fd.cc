#include "base/scoped_fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"

namespace monarch {

void ScopedFd::reset(int fd) {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  MONARCH_CHECK(old != fd);
  const int saved_errno = errno;
  // Not repeated on EINTR: Linux has freed the number by then, and another thread may own it already. EBADF
  // means that somebody closed a number that was ours.
  const int result = close(old);
  MONARCH_CHECK(result == 0 || errno != EBADF);
  errno = saved_errno;
}

absl::StatusOr<ScopedFd> ScopedFd::Dup() const {
  // From 3 on: a duplicate must never become a standard stream of a process that had one closed.
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return ErrnoStatus(absl::StrCat("duplicate fd ", fd_), errno);
  return ScopedFd(fd);
}

}  // namespace monarch
