#include "daemon/launcher/systemd_launcher_host.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace monarch {
namespace {

// Threading: confined to one thread.
class FakeSystemd final : public SystemdManager {
 public:
  absl::StatusOr<pid_t> Start(const TransientService& service, absl::Duration) override {
    service_ = service;
    socklen_t size = sizeof(stdin_type_);
    getsockopt(service.stdin_fd, SOL_SOCKET, SO_TYPE, &stdin_type_, &size);
    return result_;
  }
  absl::Status Stop(const std::string&, absl::Duration) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> JobOf(pid_t) override { return std::string(); }

  absl::StatusOr<pid_t> result_ = absl::UnavailableError("systemd says failed");
  TransientService service_;
  int stdin_type_ = -1;
};

TEST_CASE("AsksForAServiceOfTheSessionsUser") {
  FakeSystemd systemd;
  SystemdLauncherHost host(&systemd, "/opt/monarch-launcher");
  const SessionId session = SessionId::Random();
  const absl::StatusOr<StartedLauncher> started = host.Start(session, 4711);
  CHECK(started.status() == absl::UnavailableError("systemd says failed"));
  const TransientService& service = systemd.service_;
  CHECK(service.name == "monarch-session-" + session.ToHex() + ".service");
  CHECK(service.slice == "monarch.slice");
  CHECK(service.uid == 4711);
  CHECK(service.argv ==
        std::vector<std::string>{"/opt/monarch-launcher", "--session=" + session.ToHex(), "--daemon-fd=0"});
  CHECK(systemd.stdin_type_ == SOCK_SEQPACKET);
}

TEST_CASE("TakesNoProcessThatIsNotTheServices") {
  FakeSystemd systemd;
  systemd.result_ = getpid();  // as if the number had gone to another
  SystemdLauncherHost host(&systemd, "/opt/monarch-launcher");
  const SessionId session = SessionId::Random();
  const absl::StatusOr<StartedLauncher> started = host.Start(session, 4711);
  CHECK(absl::IsUnavailable(started.status()));
  CHECK(
      std::string(started.status().message()).find("journalctl -u " + SystemdLauncherHost::UnitOf(session)) !=
      std::string::npos);
}

TEST_CASE("SaysWhatIsMissingWithoutSystemd") {
  if (access("/run/systemd/system", F_OK) == 0) return;
  const auto systemd = SystemdManager::Open(SystemdManager::Scope::kSystem);
  CHECK(absl::IsUnavailable(systemd.status()));
  CHECK(systemd.status().message() == "systemd does not run here: no /run/systemd/system");
}

}  // namespace
}  // namespace monarch
