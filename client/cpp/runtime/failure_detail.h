#pragma once

#include "absl/time/time.h"
#include "base/failure_event.h"
#include "client/cpp/runtime/runtime.h"

namespace monarch {

// The event, and its causes, with what has become known of a process's death since it was told: the last
// lines of stderr, the back-trace, whether it was for lack of memory. Waits at most `timeout` in all until
// that is known. Other events, and deaths of which nothing more comes, are given back as they are.
FailureEvent WithDetail(Runtime* runtime, FailureEvent event, absl::Duration timeout);

}  // namespace monarch
