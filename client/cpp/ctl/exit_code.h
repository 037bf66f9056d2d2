#pragma once

namespace monarch::ctl {

// What monarchctl ends with; part of its interface (see --help). The worst of what happened, in this order.
inline constexpr int kExitOk = 0;
inline constexpr int kExitNothing = 1;  // no daemon was found
inline constexpr int kExitUsage = 2;    // the command line was wrong
inline constexpr int kExitSilent = 3;   // a daemon did not answer in time
inline constexpr int kExitRefused = 4;  // a daemon answered with an error
inline constexpr int kExitUnknown = 5;  // no such failure or process is known
inline constexpr int kExitUnread = 6;   // a process could not be read

}  // namespace monarch::ctl
