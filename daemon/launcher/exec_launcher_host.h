#pragma once

#include <string>

#include "daemon/launcher/launcher_host.h"

namespace monarch {

// Starts launchers as children of this process: private daemons, containers, tests. They lead sessions of
// their own and outlive this process: ending then is their decision. Threading: thread-safe.
class ExecLauncherHost final : public LauncherHost {
 public:
  // `program`: path of monarch-launcher. `log_fd`: its stdout and stderr, the caller's for the life of this
  // object; -1: /dev/null.
  ExecLauncherHost(std::string program, int log_fd) : program_(std::move(program)), log_fd_(log_fd) {}

  // PermissionDenied for another user than this process's.
  absl::StatusOr<StartedLauncher> Start(const SessionId& session, uid_t uid) override;

 private:
  const std::string program_;
  const int log_fd_;
};

}  // namespace monarch
