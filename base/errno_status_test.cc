#include "base/errno_status.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <utility>

namespace monarch {
namespace {

TEST_CASE("EachErrnoHasItsCode", "[errno_status]") {
  const std::pair<int, absl::StatusCode> kTable[] = {
      {ENOENT, absl::StatusCode::kNotFound},
      {EEXIST, absl::StatusCode::kAlreadyExists},
      {EACCES, absl::StatusCode::kPermissionDenied},
      {EPERM, absl::StatusCode::kPermissionDenied},
      {EINVAL, absl::StatusCode::kInvalidArgument},
      {ENAMETOOLONG, absl::StatusCode::kInvalidArgument},
      {ENOMEM, absl::StatusCode::kResourceExhausted},
      {EMFILE, absl::StatusCode::kResourceExhausted},
      {ENFILE, absl::StatusCode::kResourceExhausted},
      {ENOSPC, absl::StatusCode::kResourceExhausted},
      {EAGAIN, absl::StatusCode::kResourceExhausted},
      {EPIPE, absl::StatusCode::kUnavailable},
      {ECONNRESET, absl::StatusCode::kUnavailable},
      {ECONNREFUSED, absl::StatusCode::kUnavailable},
      {ENOTCONN, absl::StatusCode::kUnavailable},
      {ETIMEDOUT, absl::StatusCode::kDeadlineExceeded},
      {ENOSYS, absl::StatusCode::kUnimplemented},
      {EOPNOTSUPP, absl::StatusCode::kUnimplemented},
      {EIO, absl::StatusCode::kInternal},
      {EBADF, absl::StatusCode::kInternal},
  };
  for (const auto& [error, code] : kTable) {
    INFO("errno " << error);
    CHECK(ErrnoStatus("try", error).code() == code);
  }
}

TEST_CASE("TheMessageSaysOperationAndCause", "[errno_status]") {
  CHECK(ErrnoStatus("open /run/monarch", ENOENT).message() == "open /run/monarch: No such file or directory");
}

TEST_CASE("AnUnknownErrnoIsAnErrorWithItsNumber", "[errno_status]") {
  const absl::Status status = ErrnoStatus("ioctl", 99999);
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK(status.message() == "ioctl: error 99999");
  CHECK_FALSE(ErrnoStatus("ioctl", 0).ok());
}

}  // namespace
}  // namespace monarch
