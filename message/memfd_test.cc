#include "message/memfd.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <utility>

namespace monarch {
namespace {

constexpr size_t kBytes = 8192;

ScopedFd Unsealed(size_t bytes, int seals) {
  ScopedFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(fd.valid());
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

absl::StatusCode CheckCode(int fd) { return CheckSealedMemfd(fd, 1, 1 << 20).status().code(); }

TEST_CASE("CreatedMemfdPassesItsOwnCheckAndKeepsItsSize") {
  auto fd = CreateSealedMemfd("test", kBytes);
  REQUIRE(fd.ok());
  CHECK(*CheckSealedMemfd(fd->get(), kBytes, kBytes) == kBytes);
  CHECK(ftruncate(fd->get(), kBytes / 2) != 0);
  CHECK(ftruncate(fd->get(), kBytes * 2) != 0);
  CHECK(fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK((fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("CreateRefusesImpossibleSizes") {
  CHECK(CreateSealedMemfd("test", 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(CreateSealedMemfd("test", ~size_t{0}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("MemfdWithoutAnyOneSealIsRefused") {
  const int seals =
      GENERATE(F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(CheckCode(Unsealed(kBytes, seals).get()) == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("WhatIsNoMemfdIsRefused") {
  const ScopedFd event(eventfd(0, EFD_CLOEXEC));
  CHECK(CheckCode(event.get()) == absl::StatusCode::kFailedPrecondition);
  const ScopedFd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  CHECK(CheckCode(zero.get()) == absl::StatusCode::kFailedPrecondition);
  CHECK(CheckCode(-1) == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("MemfdOfHugePagesIsRefused") {
  const ScopedFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.valid()) {
    WARN("no huge pages here");
    return;
  }
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK(CheckSealedMemfd(fd.get(), 0, 1 << 20).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("MemfdOfAnotherSizeIsRefused") {
  auto fd = CreateSealedMemfd("test", kBytes);
  REQUIRE(fd.ok());
  CHECK(CheckSealedMemfd(fd->get(), kBytes + 1, kBytes * 2).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(CheckSealedMemfd(fd->get(), 1, kBytes - 1).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("MappingsOfOneMemfdShareBytesAndMove") {
  auto fd = CreateSealedMemfd("test", kBytes);
  REQUIRE(fd.ok());
  auto one = Mapping::Map(fd->get(), kBytes);
  auto two = Mapping::Map(fd->get(), kBytes);
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  one->data()[kBytes - 1] = 7;
  CHECK(two->data()[kBytes - 1] == 7);
  Mapping moved = *std::move(one);
  CHECK(moved.size() == kBytes);
  moved = *std::move(two);
  CHECK(moved.data()[kBytes - 1] == 7);
  CHECK(Mapping::Map(-1, kBytes).status().code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace monarch
