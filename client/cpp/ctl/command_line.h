#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace monarch::ctl {

enum class Command { kStatus, kDoctor, kSessions, kPs, kTree, kWhy, kEvents, kStack, kStop };

struct CommandLine {
  Command command = Command::kStatus;
  std::string target;    // kWhy, kStack: of whom; empty: whatever failed last, all. kStop: the session
  absl::Duration grace;  // kStop; zero: the daemon's
  absl::Duration since = absl::InfiniteDuration();  // kEvents: of what age; longer ago is left out
  bool follow = false;                              // kEvents: and those to come
  bool json = false;
  std::string address;  // empty: all that can be found
  absl::Duration timeout = absl::Seconds(5);
};

// What was asked for, or the code to end with: help, the version and what is wrong with the line are already
// printed.
struct Parsed {
  std::optional<CommandLine> line;
  int exit_code = 0;
};
Parsed ParseCommandLine(int argc, const char* const* argv);

}  // namespace monarch::ctl
