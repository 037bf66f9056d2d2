#pragma once

#include "absl/status/statusor.h"
#include "base/limits.h"
#include "daemon/activity_state.h"
#include "daemon/event_log.h"
#include "daemon/process_types.h"
#include "proto/monarch/v1/process.pb.h"

namespace monarch {

// Between the control plane's messages and the daemon's types. Input is hostile: InvalidArgument names the
// field.
absl::StatusOr<SpawnRequest> FromProto(const v1::SpawnProcsRequest& request, const Limits& limits);
absl::StatusOr<std::vector<ProcAddress>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::ProcAddress>& procs);
v1::ProcInfo ToProto(const ProcDescription& proc);
v1::ActorActivity ToProto(const ActorActivity& activity);
// Of an entry of the log that has one.
v1::Hang HangToProto(const EventLog::Entry& entry);
// The other direction, of a daemon that asks another.
v1::SpawnProcsRequest ToProto(const SpawnRequest& request);
SpawnResult ResultFromProto(const v1::SpawnProcsResponse& response);
RequestError ErrorFromStatus(const absl::Status& status);
// With the limit and the failures attached, as far as they fit the bounded trailer of an answer.
absl::Status ToStatus(const RequestError& error);

}  // namespace monarch
