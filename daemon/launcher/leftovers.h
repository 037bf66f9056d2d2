#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/process_stat.h"

namespace monarch {

// Finding and ending what a session's workers left running.

// The environment entry that marks a session's processes: "MONARCH_SESSION=<hex>".
std::string SessionMark(std::string_view session_hex);

// The entry that marks one worker's processes among them: "MONARCH_PROC=<proc>.<incarnation>".
std::string ProcMark(const ProcAddress& proc);
// Without the numbers: what all such entries begin with.
inline constexpr char kProcMarkStart[] = "MONARCH_PROC=";

// Pure: whether it has ended, and waits to be reaped at most.
bool IsDead(const ProcessStat& process);
// Pure: every process below `ancestor` in `processes`, zombies left out.
std::vector<pid_t> DescendantsOf(pid_t ancestor, const std::vector<ProcessStat>& processes);
// Pure: direct children of `parent` that have ended and wait to be reaped.
std::vector<pid_t> DeadChildrenOf(pid_t parent, const std::vector<ProcessStat>& processes);

// The environment `pid` was started with, a zero byte before and behind each entry; empty for a process that
// is gone, or of another uid. Nothing while it is in the middle of an exec, when there is none to be read:
// the answer has to be asked for again.
std::optional<std::string> ReadEnvironment(pid_t pid);
// Pure: whether `mark` is an entry of such a text.
bool HoldsEntry(std::string_view environment, std::string_view mark);
// Pure: the first entry of such a text that begins with `start`; empty if there is none.
std::string EntryStartingWith(std::string_view environment, std::string_view start);
// Whether the environment of `pid` (one of this uid) holds `mark` as an entry of its own.
bool CarriesMark(pid_t pid, const std::string& mark);
// All processes but this one that do.
std::vector<pid_t> MarkedProcesses(const std::string& mark, const std::vector<ProcessStat>& processes);

// The signal to `pid`, if `still_wanted` holds for it once a pidfd has pinned it, so that a number that was
// given to another process meanwhile hits nobody.
bool SignalPinned(pid_t pid, int signal, const std::function<bool(pid_t)>& still_wanted);
// SIGKILL.
bool KillPinned(pid_t pid, const std::function<bool(pid_t)>& still_wanted);

}  // namespace monarch
