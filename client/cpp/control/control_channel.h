#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/ndslice.h"
#include "base/scoped_fd.h"

namespace monarch {

// How a worker process starts. Plain data.
struct ProcessSpec {
  struct Limit {
    int32_t resource = 0;  // RLIMIT_*
    uint64_t soft = 0;
    uint64_t hard = 0;
  };
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "K=V"
  std::string cwd;               // "": the daemon's
  uint32_t umask = 022;
  std::vector<Limit> limits;
  std::vector<uint32_t> cpus;  // empty: as the launcher's
  std::string boot;
  bool inherit_env = false;      // the environment of the process's daemon, with `env` on top
  std::string output_tag;        // not empty: marks its output in ClientOptions::output_stream_fd
  int64_t memory_bytes_max = 0;  // of it with all that it starts; 0: no limit
  int64_t pids_max = 0;          // processes and threads, likewise
};

struct SpawnRequest {
  std::string mesh;
  Shape shape;                     // as many processes as it has ranks
  std::vector<ProcessSpec> specs;  // one, or one for each process
  std::vector<HostId> hosts;       // one for each process; none: the daemon's own
  std::vector<uint32_t> ranks;     // those to be started, ascending; none: all
  uint32_t incarnation = 1;        // of their addresses: which start of these ranks it is
  ActorAddress owner;
  absl::Duration phase_timeout;  // zero: the daemon's default

  size_t count() const { return ranks.empty() ? shape.size() : ranks.size(); }
};

struct AttachedHost {
  HostId host;
  std::string name;
  std::string address;
};

struct SpawnedProc {
  ProcAddress address;
  int64_t pid = 0;
};

struct ProcStatus {
  ProcAddress address;
  uint32_t rank = 0;
  int64_t pid = 0;
  std::string mesh;
  std::string phase;
  std::string rank_label;
};

// An actor that is at work. Plain data.
struct ActorActivity {
  ActorAddress actor;
  int64_t pid = 0;
  std::string method;
  absl::Duration age;
  std::string state;         // as in process.proto
  std::string wait_channel;  // "": not known
};

// Requests of a process to its host's daemon about the hosts and worker processes of its session. Each blocks
// until it is answered; a request whose connection broke before the answer is repeated under the same
// request id, so it takes effect once. A refused request's limit and failures: ControlFailureOf. Threading:
// thread-safe.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  // In rank order.
  virtual absl::StatusOr<std::vector<SpawnedProc>> SpawnProcs(const SpawnRequest& request) = 0;
  // How each ended, in the order of `procs`. Zero durations: the daemon's defaults.
  virtual absl::StatusOr<std::vector<FailureEvent>> StopProcs(const std::vector<ProcAddress>& procs,
                                                              absl::Duration grace, absl::Duration kill_after,
                                                              const std::string& reason) = 0;
  virtual absl::Status SignalProcs(const std::vector<ProcAddress>& procs, int signal) = 0;
  virtual absl::StatusOr<std::vector<ProcStatus>> ListProcs() = 0;
  // Of the session's actors on this host. Takes up to 200 ms if one has been at work for a second.
  virtual absl::StatusOr<std::vector<ActorActivity>> ListActivities() = 0;
  // Makes the host of the worker daemon at `address` part of the session; idempotent. Unavailable, naming the
  // address: nobody answers there within `timeout`.
  virtual absl::StatusOr<AttachedHost> AttachHost(const std::string& address, absl::Duration timeout) = 0;
  // Stops the session's processes there, then ends that host's daemon. Zero durations: the daemon's defaults.
  virtual absl::Status ShutdownHost(const HostId& host, absl::Duration grace, absl::Duration kill_after) = 0;
  // Drops the connection, if there is one; a later request opens another.
  virtual void Close() = 0;
};

// What the daemon said about a refusal beyond its status: empty if nothing.
struct ControlFailure {
  std::string limit;
  std::vector<FailureEvent> failures;
};
ControlFailure ControlFailureOf(const absl::Status& status);

// Over gRPC. `open_fd` gives a stream socket that the daemon serves (Runtime::OpenControl); it is asked at
// the first request, and again after the connection was dropped, which a second without requests does.
// `token`: whose requests they are (Runtime::control_token).
std::unique_ptr<ControlChannel> MakeControlChannel(std::function<absl::StatusOr<ScopedFd>()> open_fd,
                                                   const StartToken& token);

}  // namespace monarch
