#include "message/death_board.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

// `proc` says whose the entry is, and is written last. `end` names the incarnation again, so that a reader
// between two writers takes no one's end for another's.
struct Entry {
  std::atomic<uint64_t> proc;
  std::atomic<uint64_t> end;
};
static_assert(sizeof(Entry) * kDeathBoardEntries == kDeathBoardBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t kWaitStatusMask = 0xffff;

Entry* EntryOf(const Mapping& mapping, uint64_t proc) {
  return reinterpret_cast<Entry*>(mapping.data()) + proc % kDeathBoardEntries;
}

}  // namespace

absl::StatusOr<DeathBoard> DeathBoard::Create() {
  DeathBoard board;
  MONARCH_ASSIGN_OR_RETURN(board.fd_, CreateOwnedMemfd("monarch-deaths", kDeathBoardBytes, &board.mapping_));
  return board;
}

void DeathBoard::Write(const ProcAddress& proc, int wait_status) {
  Entry* entry = EntryOf(mapping_, proc.proc);
  entry->proc.store(0);
  entry->end.store(uint64_t{proc.incarnation} << 32 | (static_cast<uint64_t>(wait_status) & kWaitStatusMask));
  entry->proc.store(proc.proc);
}

absl::StatusOr<DeathBoardView> DeathBoardView::Attach(ScopedFd memfd) {
  MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(memfd.get(), kDeathBoardBytes, kDeathBoardBytes).status());
  const int seals = fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0) return ErrnoStatus("read the seals of a death board", errno);
  if ((seals & F_SEAL_FUTURE_WRITE) == 0) {
    return absl::FailedPreconditionError("received death board can be written by others");
  }
  DeathBoardView view;
  MONARCH_ASSIGN_OR_RETURN(view.mapping_, Mapping::MapReadOnly(memfd.get(), kDeathBoardBytes));
  return view;
}

std::optional<int> DeathBoardView::EndOf(const ProcAddress& proc) const {
  const Entry* entry = EntryOf(mapping_, proc.proc);
  if (proc.proc == 0 || entry->proc.load() != proc.proc) return std::nullopt;
  const uint64_t end = entry->end.load();
  if (entry->proc.load() != proc.proc || end >> 32 != proc.incarnation) return std::nullopt;
  return static_cast<int>(end & kWaitStatusMask);
}

}  // namespace monarch
