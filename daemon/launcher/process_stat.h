#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace monarch {

// What /proc/<pid>/stat says about one process. Threading: immutable value.
struct ProcessStat {
  pid_t pid = 0;
  char state = '?';
  pid_t parent = 0;
  uint64_t start_time = 0;  // field 22, ticks since boot: with the pid it names one process
  int exit_code =
      0;  // field 52: a wait status, set before the address space goes; 0 too when it may not be read
  // Field 51: where the environment ends; 0 while an exec replaces the address space, when there is none, and
  // when it may not be read.
  uint64_t env_end = 0;
};

// InvalidArgument for a line that is not stat's. The command, which the process chooses, may hold any byte.
absl::StatusOr<ProcessStat> ParseProcessStat(std::string_view line);
// Nothing if there is no such process (any more).
std::optional<ProcessStat> ReadProcessStat(pid_t pid);
// All processes of this pid namespace; those that end meanwhile may be missing.
std::vector<ProcessStat> ListProcesses();
// This process's direct children, adopted ones included. Cheap where the kernel lists children, else as
// ListProcesses.
std::vector<pid_t> ListChildren();

}  // namespace monarch
