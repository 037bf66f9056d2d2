#pragma once

#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "daemon/activity_state.h"
#include "daemon/proc_table.h"

namespace monarch {

// Looks at what the actors of living workers are at work on: at once, or, if one of them has been for a
// second, for 200 ms. `done` comes once, on the loop, unless the loop ends first. Tables are not kept.
void ProbeActivities(EventLoop* loop, const std::vector<const ProcTable*>& tables,
                     absl::AnyInvocable<void(std::vector<ActorActivity>)> done);

}  // namespace monarch
