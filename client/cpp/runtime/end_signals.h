#pragma once

namespace monarch {

// A client that SIGTERM or SIGHUP ends says so to its daemon, and dies of that signal as it would have. A
// signal that the program handles or ignores stays its own, and so does one for which it sets a handler
// later. Threading: thread-safe.

// From now on, on this native control socket, in this process and none that it forks.
void TellOfEndSignals(int socket);
// Before that socket is closed. Nothing if another is in use.
void TellNoMoreOfEndSignals(int socket);

}  // namespace monarch
