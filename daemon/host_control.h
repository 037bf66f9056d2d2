#pragma once

#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/process_types.h"

namespace monarch {

// Requests to the daemon of another host in the name of one session. Each reply comes once, on the control
// loop, also when the connection breaks or this is destroyed (Unavailable).
// Threading: confined to the control loop.
class HostControl {
 public:
  virtual ~HostControl() = default;
  virtual void Spawn(const SpawnRequest& request, absl::AnyInvocable<void(const SpawnResult&)> reply) = 0;
  virtual void Stop(const StopRequest& request,
                    absl::AnyInvocable<void(absl::StatusOr<std::vector<FailureEvent>>)> reply) = 0;
  virtual void Signal(const std::vector<ProcAddress>& procs, int signal,
                      absl::AnyInvocable<void(absl::Status)> reply) = 0;
  // Ends that daemon: its processes by the ladder, then itself.
  virtual void Shutdown(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                        absl::AnyInvocable<void(absl::Status)> reply) = 0;
};

}  // namespace monarch
