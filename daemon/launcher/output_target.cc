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
#include "base/log.h"

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
    int error = 0;
    *written = WriteOrSay(chunk, &error);
    if (error == 0) return absl::OkStatus();
    if (!IsFull(error)) return ErrnoStatus(absl::StrCat("write worker log ", path_), error);
    // It may have room again when more comes.
    if (missing_ == 0) {
      LogWarning("launcher", "no room for the worker log, output is left out")
          .With("path", path_)
          .With("error", ErrnoStatus("write", error).ToString());
    }
    missing_ += chunk.size() - *written;
    *written = chunk.size();
    return absl::OkStatus();
  }

 private:
  static bool IsFull(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

  // How much of the chunk was written; `error`: errno of what failed.
  size_t WriteOrSay(std::string_view chunk, int* error) {
    if (!fd_.valid() && (*error = Open()) != 0) return 0;
    if (bytes_ > 0 && bytes_ + chunk.size() > half_ && (*error = Rotate()) != 0) return 0;
    if (missing_ > 0) {
      const std::string notice = absl::StrCat(in_line_ ? "\n" : "", "[monarch: ", missing_,
                                              " bytes of output are missing here: there was no room]\n");
      if (Append(notice, error) != notice.size()) return 0;
      missing_ = 0;
    }
    return Append(chunk, error);
  }
  size_t Append(std::string_view text, int* error) {
    const ssize_t got = write(fd_.get(), text.data(), text.size());
    if (got < 0) *error = errno == EINTR ? 0 : errno;
    const size_t written = got < 0 ? 0 : static_cast<size_t>(got);
    bytes_ += written;
    if (written > 0) in_line_ = text[written - 1] != '\n';
    return written;
  }
  int Open() {
    fd_.reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat info {};
    if (!fd_.valid() || fstat(fd_.get(), &info) != 0) return errno;
    bytes_ = static_cast<size_t>(info.st_size);
    return 0;
  }
  int Rotate() { return rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()) != 0 ? errno : Open(); }

  const std::string path_;
  const size_t half_;
  ScopedFd fd_;
  size_t bytes_ = 0;
  size_t missing_ = 0;  // since the last that was written
  bool in_line_ = false;
};

}  // namespace

std::unique_ptr<OutputTarget> MakeFdTarget(ScopedFd fd) { return std::make_unique<FdTarget>(std::move(fd)); }

std::unique_ptr<OutputTarget> MakeLogFileTarget(std::string path, size_t bytes_max) {
  return std::make_unique<LogFileTarget>(std::move(path), bytes_max);
}

}  // namespace monarch
