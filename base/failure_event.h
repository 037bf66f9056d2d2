#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace monarch {

// How something ended. Wire values; never renumbered.
enum class FailureKind : uint8_t {
  kUnspecified = 0,
  kException = 1,    // an exception the actor could not give to a caller
  kExited = 2,       // its process ended with a status other than 0
  kSignalled = 3,    // its process was killed by a signal
  kOutOfMemory = 4,  // ... by the kernel, for memory
  kUnreachable = 5,  // its host is silent
  kHung = 6,
  kStopped = 7,      // asked to stop, or its process ended with status 0: not a failure for the owner
  kStartFailed = 8,  // never became ready
};
std::string_view FailureKindName(FailureKind kind);  // "exception", "exited", ...

// The one failure type: in Python, C++, monarchctl, logs, and encoded in message/WIRE.md. Plain data.
// Threading: as its fields.
struct FailureEvent {
  FailureKind kind = FailureKind::kUnspecified;
  std::string mesh;   // name the user gave; empty if unknown
  uint32_t rank = 0;  // in the mesh as spawned
  std::string
      rank_label;  // coordinates as shown to people: "{'gpus': 3/8}"; empty for a mesh without dimensions
  std::string actor_class;  // "module.Class"; empty for a bare proc
  ActorAddress actor;       // actor 0: the proc itself
  std::string host_name;
  int64_t pid = 0;
  int32_t code = 0;  // exit status, or signal number
  int64_t unix_ms = 0;
  std::string phase;  // kStartFailed: accepted, launched, connected, ready
  std::string
      reason;  // one line for people; for kException the exception's last line, for kStopped the reason
  std::string stderr_tail;  // last lines, when known
  std::string traceback;    // Python's, when known
  std::string backtrace;    // native frames of a crash, when known: a line of what happened, then one each
  std::vector<FailureEvent> cause;  // 0 or 1: what this failure follows from

  // "actor <class> of mesh <mesh> rank 3 {'gpus': 3/8} on <host> (pid 12): killed by signal 9 (SIGKILL)":
  // first line without internal ids, then stderr, traceback and causes, indented. What is unknown is left
  // out. A bare proc's begins with "proc of mesh ...".
  std::string Summary() const;  // the first line
  std::string Report() const;   // all of it
  bool is_stop() const { return kind == FailureKind::kStopped; }
};

}  // namespace monarch
