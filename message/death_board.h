#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/memfd.h"

namespace monarch {

// How the processes of one launcher ended, as WIRE.md lays it out ("Death board"). The launcher writes;
// nobody else can, because the pages are sealed against every other writable mapping before they are passed
// on. So a `peer_dead` bit, which any process of the session can set, only makes its reader look here.
inline constexpr uint32_t kDeathBoardEntries = 4096;
inline constexpr size_t kDeathBoardBytes = kDeathBoardEntries * 16;

// Threading: confined to one caller at a time; readers look at any time.
class DeathBoard {
 public:
  static absl::StatusOr<DeathBoard> Create();
  int fd() const { return fd_.get(); }
  // `wait_status`: as of wait(2). Takes the place of whoever had the entry before.
  void Write(const ProcAddress& proc, int wait_status);

 private:
  ScopedFd fd_;
  Mapping mapping_;
};

// Threading: thread-safe.
class DeathBoardView {
 public:
  // FailedPrecondition: it could be written by others than its maker.
  static absl::StatusOr<DeathBoardView> Attach(ScopedFd memfd);
  // The wait status; none: not known to be dead, or so long ago that another has its entry.
  std::optional<int> EndOf(const ProcAddress& proc) const;

 private:
  Mapping mapping_;
};

}  // namespace monarch
