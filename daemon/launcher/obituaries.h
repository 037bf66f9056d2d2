#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/death_links.h"
#include "daemon/launcher/exit_status.h"
#include "message/death_board.h"
#include "message/doorbell.h"

namespace monarch {

// Tells a session's processes of a death at the wake of the life-line, without the daemon: writes the board,
// then marks and wakes who has a ring with the dead. What it does not tell, the daemon does a little later.
// Threading: thread-safe (mu_). Nothing here blocks on another process.
class Obituaries {
 public:
  static absl::StatusOr<std::unique_ptr<Obituaries>> Create();

  // Sealed: for the daemon to pass on.
  int board() const { return board_fd_; }
  // `doorbell`: as received.
  absl::Status Add(const ProcAddress& proc, ScopedFd doorbell);
  void Link(const ProcAddress& a, uint32_t bit_in_a, const ProcAddress& b, uint32_t bit_in_b);
  void SetStopping(const ProcAddress& proc);
  void SetAllStopping();

  // The life-line `key` is that of `proc`, which runs as `pid`.
  void Watch(uint64_t key, const ProcAddress& proc, pid_t pid);
  // Before the pid is reaped: its number is not looked up afterwards.
  void Unwatch(uint64_t key);
  // On the watcher's thread: reads the cause, and tells.
  void LifelineFired(uint64_t key);
  void Died(const ProcAddress& proc, const ExitStatus& cause);
  // What the process itself has said of its end, which is still to come; unknown if it has said nothing.
  ExitStatus Announced(const ProcAddress& proc);
  void Forget(const ProcAddress& proc);

 private:
  struct Process {
    ProcAddress proc;
    pid_t pid = 0;
  };
  explicit Obituaries(DeathBoard board) : board_fd_(board.fd()), board_(std::move(board)) {}

  const int board_fd_;  // board_'s

  Mutex mu_;
  DeathBoard board_ ABSL_GUARDED_BY(mu_);
  DeathLinks links_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<ProcAddress, Doorbell> doorbells_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Process> watched_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
