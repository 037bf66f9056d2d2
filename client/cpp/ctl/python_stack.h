#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace monarch::ctl {

// One thread of Python. `frames`: the innermost first, "function (file:line)".
struct PythonThread {
  pid_t tid = 0;
  std::string name;
  bool holds_interpreter = false;
  std::vector<std::string> frames;
};

// Whether an interpreter is mapped there.
bool IsPython(pid_t pid);

// What py-spy, from PATH, reads of a process that does not run: the interpreter's lock does not matter.
// Threads that are in no Python code are left out. NotFound: there is no py-spy. Internal: it could not.
// DeadlineExceeded.
absl::StatusOr<std::vector<PythonThread>> PythonStacks(pid_t pid, absl::Duration timeout);

// The same, from what `py-spy dump --json` printed. Pure. InvalidArgument.
absl::StatusOr<std::vector<PythonThread>> ParsePySpy(const std::string& json);

}  // namespace monarch::ctl
