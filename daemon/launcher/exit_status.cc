#include "daemon/launcher/exit_status.h"

#include <sys/wait.h>

#include <csignal>

#include "absl/strings/str_cat.h"

namespace monarch {

ExitStatus ExitStatus::FromWaitStatus(int status) {
  ExitStatus result;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    result.core = WCOREDUMP(status);
  } else {
    result.code = WEXITSTATUS(status);
  }
  return result;
}

int ExitStatus::ToWaitStatus() const {
  return signal != 0 ? signal | (core ? WCOREFLAG : 0) : (code & 0xff) << 8;
}

ExitStatus ExitStatus::FromSiginfo(int code, int status) {
  ExitStatus result;
  if (code == CLD_EXITED) {
    result.code = status;
  } else {
    result.signal = status;
    result.core = code == CLD_DUMPED;
  }
  return result;
}

std::string ExitStatus::ToString() const {
  return signal != 0 ? absl::StrCat("signal ", signal) : absl::StrCat("exit status ", code);
}

}  // namespace monarch
