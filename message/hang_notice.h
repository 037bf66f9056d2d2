#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "message/value.h"

namespace monarch {

// A handler that has run for longer than its mesh's threshold, as the daemon saw it; it lives. Plain data.
struct Hang {
  std::string method;        // UTF-8; its first bytes
  absl::Duration age;        // when it was seen
  std::string state;         // what its thread did then (ActivityStateName); "" if not known
  std::string wait_channel;  // of one that waits: where in the kernel, if known
  bool recovered = false;    // it has ended; `age` is how long it took
  // "train has been at work for 65.0 s: waiting (futex_wait)", "train has ended after 70.2 s".
  std::string Text() const;
};

// For the owner of a mesh, in the body of kHung. Plain data.
struct HangNotice {
  ActorAddress owner;
  FailureEvent event;  // of kind kHung: who; its reason is the hang's text
  Hang hang;
};

Value ToValue(const HangNotice& notice);
// Input is hostile: InvalidArgument for what is missing, of another type, or of another kind than kHung.
absl::StatusOr<HangNotice> HangNoticeFromValue(const Value& value);

}  // namespace monarch
