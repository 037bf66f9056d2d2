#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace monarch {

// A service without a unit file. Plain data.
struct TransientService {
  std::string name;         // with ".service"
  std::string description;  // for people
  std::string slice;
  uid_t uid = 0;  // whose primary and further groups it gets; ignored by a user's manager
  std::vector<std::string> argv;
  std::vector<std::string> env;
  int stdin_fd = -1;  // the caller's
};

// What this program asks of a systemd, over D-Bus. libsystemd is opened at run time: a host without it has no
// systemd to be asked. Threading: thread-safe; each call has a connection of its own, and blocks.
class SystemdManager {
 public:
  enum class Scope : uint8_t { kSystem, kUser };

  // Unavailable, and what is missing: no systemd here, no libsystemd, no bus.
  static absl::StatusOr<std::unique_ptr<SystemdManager>> Open(Scope scope);
  virtual ~SystemdManager() = default;

  // Starts it, and waits until its program runs. Returns its main process. Errors carry systemd's words;
  // DeadlineExceeded: it has not said anything after `timeout`.
  virtual absl::StatusOr<pid_t> Start(const TransientService& service, absl::Duration timeout) = 0;
  // Kills all of a unit, and stops it; one that is not there is stopped.
  virtual absl::Status Stop(const std::string& unit, absl::Duration timeout) = 0;
  // What systemd is about to do with the unit of `pid`: "stop", "restart", ...; empty: nothing.
  virtual absl::StatusOr<std::string> JobOf(pid_t pid) = 0;
};

}  // namespace monarch
