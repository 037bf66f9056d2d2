#include "base/errno_status.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EAGAIN:
      return absl::StatusCode::kResourceExhausted;
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ENOTCONN:
      return absl::StatusCode::kUnavailable;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case ENOSYS:
    case EOPNOTSUPP:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string Describe(int error) {
  // Neither strerror's shared buffer nor the locale's language.
  const char* text = strerrordesc_np(error);
  return text != nullptr ? std::string(text) : absl::StrCat("error ", error);
}

}  // namespace

absl::Status ErrnoStatus(std::string_view operation, int error) {
  return absl::Status(CodeOf(error), absl::StrCat(std::string(operation), ": ", Describe(error)));
}

}  // namespace monarch
