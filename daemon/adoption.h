#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "daemon/launcher/launcher_host.h"
#include "daemon/launcher_link.h"
#include "daemon/session_book.h"
#include "message/value.h"

namespace monarch {

// What a daemon leaves in its run directory for the next one: `host.state`, who it was, and for each session
// `session-<id>.state`, how its launcher is found again. All else is with the launchers.

// One entry. The token is named to the launcher; pid and start time are compared with who answers.
struct LauncherState {
  SessionId session;
  HostId host;
  pid_t pid = 0;
  uint64_t start_time = 0;
  StartToken token;
  std::string socket;  // the path of its door
};
Value ToValue(const LauncherState& state);
absl::StatusOr<LauncherState> LauncherStateFromValue(const Value& value);

std::string LauncherStatePath(const std::string& run_dir, const SessionId& session);
// `directory`: where that launcher may write.
std::string LauncherSocketPath(const std::string& directory, const SessionId& session);
// Makes the session's entry, for a launcher that was just started; gives it start time and token.
absl::StatusOr<LauncherResume> SaveLauncher(const std::string& run_dir, LauncherState state,
                                            absl::Duration absence_max);
// With the socket that it names.
void RemoveLauncherState(const std::string& run_dir, const SessionId& session);

// The host keeps its id from daemon to daemon until it boots, and each daemon counts processes from another
// place. `saved`: what the file says, or why nothing. Pure.
struct HostState {
  HostId host;
  int64_t generation = 0;
  std::string boot;
  uint64_t first_proc() const { return (static_cast<uint64_t>(generation) << 32) + 1; }
};
HostState NextHostState(const absl::StatusOr<Value>& saved, const std::string& boot);
// Reads, decides, writes. An error costs the identity, which is logged, and never the start.
HostState LoadHostState(const std::string& run_dir);

// A session found again: its launcher answers here, and has told everything.
struct AdoptedSession {
  LauncherState state;
  StartedLauncher process;
  ScopedFd board;
  SessionBook book;
  std::vector<ControlMessage> news;
};
// All that can be. What cannot costs that entry, and a line of log that says why; its launcher is ended if it
// is certainly the one. Blocks, for a launcher that is silent at most two seconds, for one that never
// ends 30.
std::vector<AdoptedSession> AdoptSessions(const std::string& run_dir, const HostId& host);

}  // namespace monarch
