#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace monarch::ctl {

// One thread of a process whose stack was read. `frames`: the innermost first.
struct NativeThread {
  pid_t tid = 0;
  std::string name;
  std::vector<std::string> frames;
};

// A process whose threads do not run, so that its stacks can be read (ptrace, with PTRACE_SEIZE: one that was
// stopped by a signal stays so, and no signal is lost). While this process lives it can be killed all the
// same; if this process is, the other one goes on. Threading: confined to one thread, for which SIGCHLD must
// be blocked.
class FrozenProcess {
 public:
  // PermissionDenied: it is another user's, or ptrace is restricted. NotFound: it has ended. A thread that
  // does not stop within `timeout` (a system call that cannot be interrupted) is left running and has no
  // frames.
  static absl::StatusOr<std::unique_ptr<FrozenProcess>> Freeze(pid_t pid, absl::Duration timeout);
  ~FrozenProcess();  // it goes on

  std::vector<NativeThread> Stacks() const;

 private:
  struct Thread {
    pid_t tid = 0;
    bool stopped = false;
    int signal = 0;  // that it was about to get
  };

  explicit FrozenProcess(pid_t pid) : pid_(pid) {}
  absl::Status SeizeNewThreads(bool* any);
  void AwaitStops(absl::Duration deadline);

  const pid_t pid_;
  std::vector<Thread> threads_;
};

}  // namespace monarch::ctl
