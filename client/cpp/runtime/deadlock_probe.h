#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "message/value.h"

namespace monarch {

// An actor that waits without a limit, and one of the calls whose answer it waits for.
// Threading: plain data.
struct WaitStep {
  ActorAddress actor;
  uint64_t wait = 0;     // which of the waits of its process
  std::string name;      // the actor's, for reports
  std::string endpoint;  // that it is in
  ActorAddress callee;
  uint64_t call = 0;  // which of the calls of its process
  uint32_t rank = 0;  // of the callee in the mesh called
  // The endpoint called, while the call is queued at the callee. None: the callee has taken it.
  std::optional<std::string> queued;
  bool operator==(const WaitStep&) const = default;
};

// What processes tell each other about their waits; bytes: WIRE.md.
// Threading: plain data.
struct Probe {
  enum class Phase { kSearch = 1, kConfirm = 2, kVerdict = 3 };
  Phase phase = Phase::kSearch;
  uint64_t id = 0;             // of this search, in the process of the first step
  std::vector<WaitStep> path;  // each step's callee is the actor of the next
  size_t at = 0;               // kConfirm, kVerdict: the step that is meant
  bool operator==(const Probe&) const = default;
};

Value ToValue(const Probe& probe);
// Of an encoded value. Input is hostile: InvalidArgument for one that is longer than `steps_max` steps with
// short names can be, an unknown phase, a path that is empty, longer than that or not connected, a step that
// is not on it.
absl::StatusOr<Probe> DecodeProbe(std::string_view bytes, size_t steps_max);

}  // namespace monarch
