#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace monarch {

// A worker's last words: on SEGV, ABRT, BUS, FPE and ILL the process writes a report to stderr
// (base/crash_report.h) and then dies of that signal. Everything on the way is async-signal-safe as far as
// libunwind is; a crash or a hang in the report itself leaves out the names that are to come, and a second
// one ends it; a forked child writes none.

// The page of this process's life-line (message/lifeline.h): it is abandoned before the report, so that
// nobody waits for that.
void SetCrashLifeline(uint8_t* page);

// For this process, and UseCrashStack for the calling thread. Handlers that are there run after this one, and
// are expected to end the process. FailedPrecondition the second time. Not while others change handlers.
absl::Status InstallCrashHandler();

// Gives the calling thread, until its end, a stack on which handlers still run when its own is used up, and
// lets those signals through. Nothing happens in a process without the handler.
void UseCrashStack();

// For who is about to end the process in good order: if a thread has begun to crash, waits for that to end
// it. The first to learn of the crash may be other processes, which then part from this one.
void AwaitCrash();

}  // namespace monarch
