#pragma once

#include <csignal>

namespace monarch {

// In the process that is to be reported on, before it crashes: what is not async-signal-safe.
void PrepareCrashReport();

// In the handler of `signal`, on the thread that got it: what happened, and the native frames, as lines of
// base/crash_report.h. Async-signal-safe as far as libunwind is, which allocates to find a name; bounded in
// frames, and names are left out when they take too long. A call that was left by a jump is made again with
// its `progress`, and goes on behind what was written, without names.
struct CrashProgress {
  int calls = 0;
  bool head = false;
  int frames = 0;
};
void WriteCrashReport(int fd, int signal, const siginfo_t& info, void* context, CrashProgress* progress);

}  // namespace monarch
