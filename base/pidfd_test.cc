#include "base/pidfd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace monarch {

TEST_CASE("A pidfd is readable once its process has ended, and closes on exec") {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(child > 0);
  const absl::StatusOr<ScopedFd> pidfd = OpenPidfd(child);
  REQUIRE(pidfd.ok());
  CHECK((fcntl(pidfd->get(), F_GETFD) & FD_CLOEXEC) != 0);
  pollfd wait{pidfd->get(), POLLIN, 0};
  CHECK(poll(&wait, 1, 10'000) == 1);
  CHECK(waitpid(child, nullptr, 0) == child);
  CHECK(absl::IsNotFound(OpenPidfd(child).status()));
}

TEST_CASE("Process 0 is none") { CHECK(absl::IsInvalidArgument(OpenPidfd(0).status())); }

}  // namespace monarch
