#include "client/cpp/runtime/failure_detail.h"

#include "base/clock.h"

namespace monarch {

FailureEvent WithDetail(Runtime* runtime, FailureEvent event, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  for (FailureEvent* at = &event; at != nullptr; at = at->cause.empty() ? nullptr : &at->cause.front()) {
    if (at->kind != FailureKind::kSignalled && at->kind != FailureKind::kExited) continue;
    const absl::StatusOr<FailureEvent> death = runtime->DeathOf(at->actor.proc, deadline - clock.Now());
    if (!death.ok()) continue;
    at->kind = death->kind;
    at->code = death->code;
    at->reason = death->reason;
    at->stderr_tail = death->stderr_tail;
    at->backtrace = death->backtrace;
  }
  return event;
}

}  // namespace monarch
