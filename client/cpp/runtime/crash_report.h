#pragma once

#include <csignal>

namespace monarch {

// In the process that is to be reported on, before it crashes: what is not async-signal-safe.
void PrepareCrashReport();

// In the handler of `signal`, on the thread that got it: what happened, and the native frames, as lines of
// base/crash_report.h. Async-signal-safe as far as libunwind is; bounded in frames, and names are left out
// when they take too long.
void WriteCrashReport(int fd, int signal, const siginfo_t& info, void* context);

}  // namespace monarch
