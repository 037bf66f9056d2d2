#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/scoped_fd.h"

namespace monarch {

struct ResourceLimit {
  int resource = 0;
  uint64_t soft = 0;
  uint64_t hard = 0;
};

// A program to start. Plain data; fds stay the caller's.
struct ChildSpec {
  struct Fd {
    int source = -1;  // here
    int target = -1;  // there; all others but these are closed at exec
  };

  std::vector<std::string> argv;  // without a slash in argv[0], PATH of `env` is searched
  std::vector<std::string> env;   // "K=V"
  std::string cwd;                // empty: as here
  std::optional<mode_t> umask;
  std::vector<ResourceLimit> limits;  // RLIMIT_CORE's soft limit is 0 unless given
  std::vector<int> cpus;              // empty: as here
  std::vector<Fd> fds;
  std::string cgroup_procs;      // file to enter a cgroup by; empty: none
  bool cgroup_needed = false;    // else failure to enter is no error
  bool die_with_parent = false;  // with the calling *thread*, which must last as long as the process
};

// A child between fork and exec, and later.
struct StartedChild {
  pid_t pid = -1;
  ScopedFd pidfd;
  ScopedFd outcome;  // becomes readable when the program runs or could not be started: ReadStartOutcome
};

struct StartFailure {
  std::string step;  // "fork", "limits", "chdir", "exec", ...
  int error = 0;
};

// Forks; the child leads a session and process group of its own, all signals unblocked and at their defaults.
// Everything is prepared before the fork: the child makes async-signal-safe calls only, so threads are no
// obstacle. Takes the failure's details into `failure` when it returns an error.
absl::StatusOr<StartedChild> StartChild(const ChildSpec& spec, StartFailure* failure);

// What became of the exec, once `outcome` is readable: nothing if the program runs (or the child was killed
// before).
std::optional<StartFailure> ReadStartOutcome(int outcome);

}  // namespace monarch
