#include "daemon/launcher/systemd_launcher_host.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/pidfd.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr absl::Duration kStartMax = absl::Seconds(20);

// Whether the process, which a pidfd holds, is the unit's, and not another that has got the number since.
bool IsIn(pid_t pid, const std::string& unit) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/cgroup"));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return absl::StrContains(text, absl::StrCat("/", unit));
}

}  // namespace

std::string SystemdLauncherHost::UnitOf(const SessionId& session) {
  return absl::StrCat("monarch-session-", session.ToHex(), ".service");
}

absl::StatusOr<StartedLauncher> SystemdLauncherHost::Start(const SessionId& session, uid_t uid) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  if (!pair.ok()) return pair.status();
  TransientService service;
  service.name = UnitOf(session);
  service.description = absl::StrCat("processes of monarch session ", session.ToHex());
  service.slice = kSlice;
  service.uid = uid;
  service.argv = {program_, absl::StrCat("--session=", session.ToHex()), "--daemon-fd=0"};
  service.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"};
  service.stdin_fd = pair->second.fd();
  MONARCH_ASSIGN_OR_RETURN(const pid_t pid, systemd_->Start(service, kStartMax));
  absl::StatusOr<ScopedFd> pidfd = OpenPidfd(pid);
  if (!pidfd.ok() || !IsIn(pid, service.name)) {
    return absl::UnavailableError(
        absl::StrCat("start ", service.name, ": it has ended at once; more: journalctl -u ", service.name));
  }
  return StartedLauncher{pid, *std::move(pidfd), std::move(pair->first)};
}

}  // namespace monarch
