#include "daemon/activity_state.h"

namespace monarch {

const char* ActivityStateName(ActivityState state) {
  switch (state) {
    case ActivityState::kUnknown:
      return "";
    case ActivityState::kStopped:
      return "stopped";
    case ActivityState::kStarved:
      return "starved";
    case ActivityState::kInterpreterHeld:
      return "interpreter held";
    case ActivityState::kComputing:
      return "computing";
    case ActivityState::kWaiting:
      return "waiting";
  }
  return "";
}

ActivityState StateOf(const ActivityFacts& facts) {
  // An interpreter that is free comes within a few of its switch intervals (5 ms), also on a busy machine.
  constexpr absl::Duration kInterpreterComesWithin = absl::Milliseconds(150);
  if (facts.process_state == 'T' || facts.process_state == 't') return ActivityState::kStopped;
  const absl::Duration waited = facts.waited_for_cpu.value_or(absl::ZeroDuration());
  if (waited > absl::ZeroDuration() && waited >= facts.window / 2) return ActivityState::kStarved;
  if (facts.interpreter_asked >= kInterpreterComesWithin) return ActivityState::kInterpreterHeld;
  if (!facts.ran.has_value() || facts.window <= absl::ZeroDuration()) return ActivityState::kUnknown;
  return *facts.ran + waited >= facts.window / 2 ? ActivityState::kComputing : ActivityState::kWaiting;
}

}  // namespace monarch
