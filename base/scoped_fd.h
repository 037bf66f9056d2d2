#pragma once

#include <utility>

#include "absl/status/statusor.h"

namespace monarch {

// Owns one file descriptor; closes it when destroyed. Move-only.
// Threading: as an int.
class ScopedFd {
 public:
  ScopedFd() = default;
  explicit ScopedFd(int fd) : fd_(fd) {}
  ScopedFd(ScopedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ScopedFd& operator=(ScopedFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~ScopedFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

  // A close-on-exec duplicate.
  absl::StatusOr<ScopedFd> Dup() const;

 private:
  int fd_ = -1;
};

}  // namespace monarch
