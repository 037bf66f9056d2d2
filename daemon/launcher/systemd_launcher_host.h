#pragma once

#include <string>
#include <utility>

#include "daemon/launcher/launcher_host.h"
#include "daemon/launcher/systemd_manager.h"

namespace monarch {

// Starts each launcher as a service of its own, monarch-session-<id>.service in monarch.slice, by systemd:
// with the user, the groups, the limits and the cgroup that systemd gives, and outside the daemon's unit, so
// that neither a restart of that unit nor its sandbox touches it. The service may divide its cgroup.
// Threading: thread-safe; Start blocks until systemd has started it, 20 ms as a rule.
class SystemdLauncherHost final : public LauncherHost {
 public:
  static constexpr char kSlice[] = "monarch.slice";

  // `program`: the absolute path of monarch-launcher. `systemd` outlives this.
  SystemdLauncherHost(SystemdManager* systemd, std::string program)
      : systemd_(systemd), program_(std::move(program)) {}

  absl::StatusOr<StartedLauncher> Start(const SessionId& session, uid_t uid) override;

  static std::string UnitOf(const SessionId& session);

 private:
  SystemdManager* const systemd_;
  const std::string program_;
};

}  // namespace monarch
