#include "base/scoped_fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <utility>

namespace monarch {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

ScopedFd OpenOne() {
  ScopedFd fd(eventfd(0, EFD_CLOEXEC));
  REQUIRE(fd.valid());
  return fd;
}

TEST_CASE("ClosesWhenDestroyed", "[scoped_fd]") {
  int number = -1;
  {
    const ScopedFd fd = OpenOne();
    number = fd.get();
    CHECK(IsOpen(number));
  }
  CHECK_FALSE(IsOpen(number));
}

TEST_CASE("MovingLeavesOneOwner", "[scoped_fd]") {
  ScopedFd first = OpenOne();
  const int number = first.get();
  ScopedFd second = std::move(first);
  CHECK_FALSE(first.valid());
  CHECK(second.get() == number);

  ScopedFd third = OpenOne();
  const int replaced = third.get();
  third = std::move(second);
  CHECK_FALSE(IsOpen(replaced));
  CHECK(third.get() == number);
  CHECK(IsOpen(number));

  ScopedFd& itself = third;
  third = std::move(itself);
  CHECK(third.get() == number);
}

TEST_CASE("ReleaseGivesUpOwnership", "[scoped_fd]") {
  ScopedFd fd = OpenOne();
  const ScopedFd owner(fd.release());
  CHECK_FALSE(fd.valid());
  fd.reset();
  CHECK(IsOpen(owner.get()));
}

TEST_CASE("ResetClosesTheOldFdAndKeepsErrno", "[scoped_fd]") {
  ScopedFd fd = OpenOne();
  const int old = fd.get();
  errno = ENOSPC;
  fd.reset();
  CHECK(errno == ENOSPC);
  CHECK_FALSE(IsOpen(old));
}

TEST_CASE("DupIsAnotherCloseOnExecFdOfTheSameFile", "[scoped_fd]") {
  ScopedFd fd = OpenOne();
  absl::StatusOr<ScopedFd> copy = fd.Dup();
  REQUIRE(copy.ok());
  CHECK(copy->get() != fd.get());
  CHECK(copy->get() >= 3);
  CHECK((fcntl(copy->get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(eventfd_write(fd.get(), 7) == 0);
  fd.reset();
  eventfd_t value = 0;
  CHECK(eventfd_read(copy->get(), &value) == 0);
  CHECK(value == 7);
}

TEST_CASE("DupOfNoFdIsAnErrorThatNamesIt", "[scoped_fd]") {
  const absl::StatusOr<ScopedFd> copy = ScopedFd().Dup();
  CHECK(copy.status().message() == "duplicate fd -1: Bad file descriptor");
}

}  // namespace
}  // namespace monarch
