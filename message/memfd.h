#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/scoped_fd.h"

namespace monarch {

// A memfd of fixed size: sealed SHRINK|GROW|SEAL at creation, so that no holder can make another fault with
// SIGBUS.
absl::StatusOr<ScopedFd> CreateSealedMemfd(std::string_view name, size_t bytes);

// One that only its maker can write, through `mapping`: sealed against other writable mappings too.
class Mapping;
absl::StatusOr<ScopedFd> CreateOwnedMemfd(std::string_view name, size_t bytes, Mapping* mapping);

// What was received as a memfd: FailedPrecondition unless it carries those seals, InvalidArgument unless its
// size is within [bytes_min, bytes_max]. Returns the size. To be called before the first mapping of any
// received memfd.
absl::StatusOr<size_t> CheckSealedMemfd(int fd, size_t bytes_min, size_t bytes_max);

// Owns one shared mapping of a whole memfd; unmaps when destroyed. Move-only.
// Threading: as a pointer.
class Mapping {
 public:
  Mapping() = default;
  static absl::StatusOr<Mapping> Map(int fd, size_t bytes);  // read-write
  static absl::StatusOr<Mapping> MapReadOnly(int fd, size_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static absl::StatusOr<Mapping> MapAs(int protection, int fd, size_t bytes);

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace monarch
