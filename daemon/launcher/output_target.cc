#include "daemon/launcher/output_target.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

// Large enough that a log costs few system calls.
constexpr size_t kLogChunkBytesMax = 64 * 1024;

absl::Status WriteSome(int fd, std::string_view chunk, std::string_view what, size_t* written) {
  const ssize_t got = write(fd, chunk.data(), chunk.size());
  if (got < 0 && errno != EINTR && errno != EAGAIN) return ErrnoStatus(what, errno);
  *written = got < 0 ? 0 : static_cast<size_t>(got);
  return absl::OkStatus();
}

class FdTarget final : public OutputTarget {
 public:
  explicit FdTarget(ScopedFd fd) : fd_(std::move(fd)) {}
  size_t chunk_bytes_max() const override { return PIPE_BUF; }
  bool WaitForRoom(int wake_fd) override {
    pollfd entries[2] = {{fd_.get(), POLLOUT, 0}, {wake_fd, POLLIN, 0}};
    while (poll(entries, 2, -1) < 0 && errno == EINTR) {
    }
    // An error counts as room: the write names it.
    return entries[1].revents == 0 && entries[0].revents != 0;
  }
  absl::Status Write(std::string_view chunk, size_t* written) override {
    return WriteSome(fd_.get(), chunk, "write output", written);
  }

 private:
  const ScopedFd fd_;
};

class LogFileTarget final : public OutputTarget {
 public:
  LogFileTarget(std::string path, size_t bytes_max) : path_(std::move(path)), half_(bytes_max / 2) {}
  size_t chunk_bytes_max() const override { return kLogChunkBytesMax; }
  bool WaitForRoom(int) override { return true; }
  absl::Status Write(std::string_view chunk, size_t* written) override {
    if (!fd_.valid()) MONARCH_RETURN_IF_ERROR(Open());
    if (bytes_ > 0 && bytes_ + chunk.size() > half_) MONARCH_RETURN_IF_ERROR(Rotate());
    MONARCH_RETURN_IF_ERROR(WriteSome(fd_.get(), chunk, "write worker log", written));
    bytes_ += *written;
    return absl::OkStatus();
  }

 private:
  absl::Status Open() {
    fd_.reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat info {};
    if (!fd_.valid() || fstat(fd_.get(), &info) != 0) {
      return ErrnoStatus(absl::StrCat("open worker log ", path_), errno);
    }
    bytes_ = static_cast<size_t>(info.st_size);
    return absl::OkStatus();
  }
  absl::Status Rotate() {
    if (rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()) != 0) {
      return ErrnoStatus(absl::StrCat("rotate worker log ", path_), errno);
    }
    return Open();
  }

  const std::string path_;
  const size_t half_;
  ScopedFd fd_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<OutputTarget> MakeFdTarget(ScopedFd fd) { return std::make_unique<FdTarget>(std::move(fd)); }

std::unique_ptr<OutputTarget> MakeLogFileTarget(std::string path, size_t bytes_max) {
  return std::make_unique<LogFileTarget>(std::move(path), bytes_max);
}

}  // namespace monarch
