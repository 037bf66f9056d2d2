#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/ndslice.h"

namespace monarch {

// What the control plane asks for, without its encoding. Plain data.

// How far a process has come. The names are those of the control plane.
enum class ProcPhase { kAccepted, kLaunched, kConnected, kReady, kStopping, kExited };
const char* ProcPhaseName(ProcPhase phase);

struct ProcessSpec {
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string cwd;  // "": the daemon's
  uint32_t umask = 0;
  std::vector<std::array<int64_t, 3>> rlimits;  // resource, soft, hard
  std::vector<uint32_t> cpus;
  std::string boot;
  bool inherit_env = false;      // the daemon's environment, with `env` on top
  std::string output_tag;        // not empty: marks its output in the client's output stream
  int64_t memory_bytes_max = 0;  // of it with all that it starts; 0: no limit
  int64_t pids_max = 0;          // processes and threads, likewise
};

struct SpawnRequest {
  std::string request_id;
  std::string mesh;
  Shape shape;
  std::vector<HostId> hosts;       // one for each that is to be started; none: the host that is asked
  std::vector<uint32_t> ranks;     // those to be started; none: all
  std::vector<ProcessSpec> specs;  // one for all, or one for each that is to be started
  uint32_t incarnation = 1;        // which start of these ranks it is
  ActorAddress owner;              // proc 0: the asker's proc
  absl::Duration phase_timeout;    // zero: the default

  size_t count() const { return ranks.empty() ? shape.size() : ranks.size(); }
  uint32_t RankOf(size_t index) const { return ranks.empty() ? static_cast<uint32_t>(index) : ranks[index]; }
};

struct ProcDescription {
  ProcAddress address;
  uint32_t rank = 0;
  int64_t pid = 0;
  std::string mesh;
  ProcPhase phase = ProcPhase::kAccepted;
  std::string rank_label;
};

// Why a request was refused, with what the control plane attaches to the status.
struct RequestError {
  absl::Status status;
  std::string limit;  // ResourceExhausted: its name
  uint64_t limit_value = 0;
  uint64_t asked = 0;
  std::vector<FailureEvent> failures;
};

struct SpawnResult {
  RequestError error;  // status OK: all processes are ready
  std::vector<ProcDescription> procs;
};

struct StopRequest {
  std::vector<ProcAddress> procs;
  absl::Duration grace;       // zero: the default
  absl::Duration kill_after;  // zero: the default
  std::string reason;
};

}  // namespace monarch
