#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/failure_event.h"
#include "message/value.h"

namespace monarch {

// How often a mesh with a restart policy was restarted, in the *actor up* of the actor that supervises it.
// For listings alone: of the cause, the long texts are left out. Plain data.
struct MeshRestarts {
  std::string mesh;
  bool of_procs = false;     // a mesh of processes; else of actors, which the supervising actor owns
  std::string policy;        // for people
  uint32_t incarnation = 1;  // of the mesh
  uint32_t restarts = 0;
  bool given_up = false;              // more failures than the policy allows
  std::optional<FailureEvent> cause;  // of the last restart, or why it was given up
};

Value ToValue(const MeshRestarts& restarts);
// Input is hostile: InvalidArgument for what is missing or of another type.
absl::StatusOr<MeshRestarts> MeshRestartsFromValue(const Value& value);

}  // namespace monarch
