#include "proto/failure_event_conversion.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/id_conversion.h"

namespace monarch {
namespace {

// As in the native encoding: hostile nesting must not eat the stack.
constexpr int kCauseDepthMax = 16;

static_assert(static_cast<int>(FailureKind::kStartFailed) == v1::FAILURE_KIND_START_FAILED);
static_assert(static_cast<int>(FailureKind::kException) == v1::FAILURE_KIND_EXCEPTION);

absl::StatusOr<FailureEvent> FromProtoAt(const v1::FailureEvent& event, int depth) {
  if (depth > kCauseDepthMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("parse failure event: causes nested deeper than ", kCauseDepthMax));
  }
  // An enum of proto3 is open: an unknown number gets here as it is.
  if (!v1::FailureKind_IsValid(event.kind())) {
    return absl::InvalidArgumentError(
        absl::StrCat("parse failure event: unknown kind ", static_cast<int>(event.kind())));
  }
  FailureEvent out;
  out.kind = static_cast<FailureKind>(event.kind());
  out.mesh = event.mesh();
  out.rank = event.rank();
  out.rank_label = event.rank_label();
  out.actor_class = event.actor_class();
  if (event.has_actor()) {
    MONARCH_ASSIGN_OR_RETURN(out.actor, FromProto(event.actor()));
  }
  out.host_name = event.host_name();
  out.pid = event.pid();
  out.code = event.code();
  out.unix_ms = event.unix_ms();
  out.phase = event.phase();
  out.reason = event.reason();
  out.stderr_tail = event.stderr_tail();
  out.traceback = event.traceback();
  out.backtrace = event.backtrace();
  for (const v1::FailureEvent& cause : event.cause()) {
    MONARCH_ASSIGN_OR_RETURN(FailureEvent converted, FromProtoAt(cause, depth + 1));
    out.cause.push_back(std::move(converted));
  }
  return out;
}

}  // namespace

v1::FailureEvent ToProto(const FailureEvent& event) {
  v1::FailureEvent out;
  out.set_kind(static_cast<v1::FailureKind>(event.kind));
  out.set_mesh(event.mesh);
  out.set_rank(event.rank);
  out.set_rank_label(event.rank_label);
  out.set_actor_class(event.actor_class);
  *out.mutable_actor() = ToProto(event.actor);
  out.set_host_name(event.host_name);
  out.set_pid(event.pid);
  out.set_code(event.code);
  out.set_unix_ms(event.unix_ms);
  out.set_phase(event.phase);
  out.set_reason(event.reason);
  out.set_stderr_tail(event.stderr_tail);
  out.set_traceback(event.traceback);
  out.set_backtrace(event.backtrace);
  for (const FailureEvent& cause : event.cause) *out.add_cause() = ToProto(cause);
  return out;
}

absl::StatusOr<FailureEvent> FromProto(const v1::FailureEvent& event) { return FromProtoAt(event, 0); }

}  // namespace monarch
