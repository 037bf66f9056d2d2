#pragma once

#include "absl/status/statusor.h"
#include "base/failure_event.h"
#include "proto/monarch/v1/common.pb.h"

namespace monarch {

// The one converter; a test round-trips every field.
v1::FailureEvent ToProto(const FailureEvent& event);
absl::StatusOr<FailureEvent> FromProto(const v1::FailureEvent& event);

}  // namespace monarch
