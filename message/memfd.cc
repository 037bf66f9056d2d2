#include "message/memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr size_t kFileBytesMax = std::numeric_limits<off_t>::max();

absl::StatusOr<ScopedFd> CreateMemfd(std::string_view name, size_t bytes) {
  if (bytes == 0 || bytes > kFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("memfd of ", bytes, " bytes"));
  }
  const std::string label(name);
  ScopedFd fd(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(absl::StrCat("create memfd ", label), errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(absl::StrCat("resize memfd ", label, " to ", bytes, " bytes"), errno);
  }
  return fd;
}

absl::Status Seal(int fd, int seals) {
  return fcntl(fd, F_ADD_SEALS, seals) == 0 ? absl::OkStatus() : ErrnoStatus("seal memfd", errno);
}

}  // namespace

absl::StatusOr<ScopedFd> CreateSealedMemfd(std::string_view name, size_t bytes) {
  MONARCH_ASSIGN_OR_RETURN(ScopedFd fd, CreateMemfd(name, bytes));
  MONARCH_RETURN_IF_ERROR(Seal(fd.get(), kSeals));
  return fd;
}

absl::StatusOr<ScopedFd> CreateOwnedMemfd(std::string_view name, size_t bytes, Mapping* mapping) {
  MONARCH_ASSIGN_OR_RETURN(ScopedFd fd, CreateMemfd(name, bytes));
  MONARCH_ASSIGN_OR_RETURN(*mapping, Mapping::Map(fd.get(), bytes));
  MONARCH_RETURN_IF_ERROR(Seal(fd.get(), kSeals | F_SEAL_FUTURE_WRITE));
  return fd;
}

absl::StatusOr<size_t> CheckSealedMemfd(int fd, size_t bytes_min, size_t bytes_max) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    const int error = errno;
    // EINVAL: a kind of file that has no seals.
    return absl::FailedPreconditionError(
        absl::StrCat("received fd is no memfd: ", ErrnoStatus("read its seals", error).message()));
  }
  if ((seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError(absl::StrCat("received memfd is not sealed, seals ", seals));
  }
  // With huge pages a fault can fail for want of one, and the reader has the SIGBUS, whatever is sealed.
  struct statfs file_system = {};
  if (fstatfs(fd, &file_system) != 0) return ErrnoStatus("statfs of a received memfd", errno);
  if (file_system.f_type != TMPFS_MAGIC) {
    return absl::FailedPreconditionError("received memfd is not of ordinary pages");
  }
  struct stat file = {};
  if (fstat(fd, &file) != 0) return ErrnoStatus("stat of a received memfd", errno);
  const auto bytes = static_cast<size_t>(file.st_size);
  if (bytes < bytes_min || bytes > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("received memfd has ", bytes, " bytes, expected ", bytes_min, " to ", bytes_max));
  }
  return bytes;
}

absl::StatusOr<Mapping> Mapping::Map(int fd, size_t bytes) {
  return MapAs(PROT_READ | PROT_WRITE, fd, bytes);
}

absl::StatusOr<Mapping> Mapping::MapReadOnly(int fd, size_t bytes) { return MapAs(PROT_READ, fd, bytes); }

absl::StatusOr<Mapping> Mapping::MapAs(int protection, int fd, size_t bytes) {
  // NORESERVE: a segment may be larger than the machine's memory; pages are charged when touched.
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus(absl::StrCat("map memfd of ", bytes, " bytes"), errno);
  Mapping mapping;
  mapping.data_ = static_cast<uint8_t*>(data);
  mapping.size_ = bytes;
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace monarch
