#pragma once

#include <string>

namespace monarch {

// How a process ended. Threading: immutable value.
struct ExitStatus {
  int code = 0;    // exit status, if it exited
  int signal = 0;  // what killed it, if it was killed
  bool core = false;

  // The word of wait(2), which is also field 52 of /proc/<pid>/stat.
  static ExitStatus FromWaitStatus(int status);
  int ToWaitStatus() const;
  // `code` and `status` as waitid reports them.
  static ExitStatus FromSiginfo(int code, int status);
  bool known() const { return code != 0 || signal != 0; }
  std::string ToString() const;  // "exit status 3", "signal 9"
  bool operator==(const ExitStatus&) const = default;
};

}  // namespace monarch
