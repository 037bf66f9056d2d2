#pragma once

#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "daemon/activity_state.h"
#include "daemon/proc_table.h"
#include "message/doorbell.h"

namespace monarch {

// A living process's pages, as they are. FailedPrecondition: it has none.
absl::StatusOr<Doorbell> PagesOf(const ProcRecord& record);

// Looks at what the actors of living processes are at work on: at once, or, if one of them has been for
// `old`, for 200 ms. `done` comes once, on the loop, unless the loop ends first. Records are not kept.
void ProbeActivities(EventLoop* loop, const std::vector<const ProcRecord*>& records, absl::Duration old,
                     absl::AnyInvocable<void(std::vector<ActorActivity>)> done);

}  // namespace monarch
