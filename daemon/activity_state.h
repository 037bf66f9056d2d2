#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"

namespace monarch {

// What an actor that is at work does, as far as it can be seen from outside.
enum class ActivityState {
  kUnknown,
  kStopped,          // the process is stopped: by a signal, or a debugger
  kStarved,          // it wants a CPU and gets little
  kInterpreterHeld,  // some thread keeps the interpreter's lock
  kComputing,
  kWaiting,  // for something else: it sleeps
};
// "" for kUnknown.
const char* ActivityStateName(ActivityState state);

// What was seen of its thread in a window of time. Plain data.
struct ActivityFacts {
  char process_state = '?';  // of /proc/<pid>/stat
  absl::Duration window;
  std::optional<absl::Duration> ran;             // on a CPU
  std::optional<absl::Duration> waited_for_cpu;  // or its process's main thread, if that waited for longer
  absl::Duration interpreter_asked;              // for how long an answer has been missing; zero: none is
};

// Pure. A process that gets no CPU does not answer for the interpreter either: it is starved.
ActivityState StateOf(const ActivityFacts& facts);

// An actor that is at work. Plain data.
struct ActorActivity {
  ActorAddress actor;
  int64_t pid = 0;
  std::string method;    // UTF-8; its first bytes
  absl::Duration began;  // CLOCK_MONOTONIC, as its process says; the handler is known by it
  absl::Duration age;
  bool hung = false;                              // told to its owner
  ActivityState state = ActivityState::kUnknown;  // looked at only when it is a second old
  std::string wait_channel;                       // where it sleeps in the kernel; "" if not known
};

}  // namespace monarch
