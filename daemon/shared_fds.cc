#include "daemon/shared_fds.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "message/doorbell.h"
#include "message/memfd.h"

namespace monarch {
namespace {

constexpr size_t kSegmentBytesMin = 4096;
constexpr size_t kSegmentBytesMax = size_t{1} << 46;

absl::Status CheckEventfd(int fd) {
  char target[64];
  const ssize_t length = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target, sizeof(target));
  if (length < 0) return ErrnoStatus("look at a received bell", errno);
  if (absl::string_view(target, static_cast<size_t>(length)) != "anon_inode:[eventfd]") {
    return absl::InvalidArgumentError("hello: the bell is not an eventfd");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedFds> TakeSharedFds(std::vector<ScopedFd>* fds) {
  if (fds->size() < 3)
    return absl::InvalidArgumentError(absl::StrCat("hello: ", fds->size(), " fds, wanted 3"));
  SharedFds shared;
  shared.doorbell = std::move((*fds)[0]);
  shared.bell = std::move((*fds)[1]);
  shared.segment = std::move((*fds)[2]);
  MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(shared.doorbell.get(), kDoorbellBytes, kDoorbellBytes).status());
  MONARCH_RETURN_IF_ERROR(CheckEventfd(shared.bell.get()));
  MONARCH_ASSIGN_OR_RETURN(shared.segment_bytes,
                           CheckSealedMemfd(shared.segment.get(), kSegmentBytesMin, kSegmentBytesMax));
  return shared;
}

}  // namespace monarch
