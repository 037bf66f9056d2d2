#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/limits.h"
#include "base/log.h"

namespace monarch {

// What the command line says, checked. Plain data.
struct DaemonOptions {
  std::string run_dir;      // "": with is_private or worker_addresses, a fresh one
  bool is_private = false;  // goes away with the client at client_fd
  int client_fd = -1;
  bool is_system = false;                     // serves all users of this host; systemd starts their launchers
  bool allow_root = false;                    // serves root's own sessions, too
  std::vector<std::string> worker_addresses;  // where other daemons may attach; none: they may not
  std::string launcher_path;                  // "": monarch-launcher beside this program
  std::string log_path;                       // "": private: <run-dir>/monarchd.log, else stderr
  LogLevel log_level = LogLevel::kInfo;
  Limits limits;  // of the environment, then of the command line: each has an option of its name

  // Takes argv. An exit code in place of options: help or version were shown, or the error was told on
  // stderr.
  struct Parsed {
    std::optional<int> exit_code;
  };
  static Parsed Parse(int argc, char** argv, DaemonOptions* options);
};

}  // namespace monarch
