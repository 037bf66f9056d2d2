#pragma once

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "proto/monarch/v1/common.pb.h"

namespace monarch {

std::string ToProtoBytes(const Id128& id);  // 16 bytes, big endian
absl::StatusOr<Id128> Id128FromProtoBytes(const std::string& bytes);
v1::ProcAddress ToProto(const ProcAddress& address);
v1::ActorAddress ToProto(const ActorAddress& address);
// InvalidArgument for a host that is not 16 bytes.
absl::StatusOr<ProcAddress> FromProto(const v1::ProcAddress& address);
absl::StatusOr<ActorAddress> FromProto(const v1::ActorAddress& address);

}  // namespace monarch
