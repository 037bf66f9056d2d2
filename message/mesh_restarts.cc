#include "message/mesh_restarts.h"

#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "message/control_message.h"

namespace monarch {
namespace {

constexpr size_t kReasonBytesMax = 1024;

// One line of it is shown; the whole is among the failures.
FailureEvent HeadOf(FailureEvent event) {
  event.stderr_tail.clear();
  event.traceback.clear();
  event.backtrace.clear();
  event.cause.clear();
  if (event.reason.size() > kReasonBytesMax) event.reason.resize(kReasonBytesMax);
  return event;
}

absl::StatusOr<uint32_t> CountFrom(const Value& value) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t count, value.AsInt());
  if (count < 0 || count > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError("restarts: a count is out of range");
  }
  return static_cast<uint32_t>(count);
}

}  // namespace

Value ToValue(const MeshRestarts& restarts) {
  Value::Map body = {{"mesh", Value(restarts.mesh)},
                     {"of_procs", Value(restarts.of_procs)},
                     {"policy", Value(restarts.policy)},
                     {"incarnation", Value(int64_t{restarts.incarnation})},
                     {"restarts", Value(int64_t{restarts.restarts})},
                     {"given_up", Value(restarts.given_up)}};
  if (restarts.cause.has_value()) body["cause"] = ToValue(HeadOf(*restarts.cause));
  return body;
}

absl::StatusOr<MeshRestarts> MeshRestartsFromValue(const Value& value) {
  MeshRestarts restarts;
  MONARCH_ASSIGN_OR_RETURN(restarts.mesh, value["mesh"].AsString());
  MONARCH_ASSIGN_OR_RETURN(restarts.of_procs, value["of_procs"].AsBool());
  MONARCH_ASSIGN_OR_RETURN(restarts.policy, value["policy"].AsString());
  MONARCH_ASSIGN_OR_RETURN(restarts.incarnation, CountFrom(value["incarnation"]));
  MONARCH_ASSIGN_OR_RETURN(restarts.restarts, CountFrom(value["restarts"]));
  MONARCH_ASSIGN_OR_RETURN(restarts.given_up, value["given_up"].AsBool());
  if (!value["cause"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(FailureEvent cause, FailureEventFromValue(value["cause"]));
    restarts.cause = HeadOf(std::move(cause));
  }
  return restarts;
}

}  // namespace monarch
