#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "daemon/launcher/child_process.h"
#include "daemon/launcher/exit_status.h"
#include "daemon/launcher/memory_kills.h"
#include "daemon/launcher/session_cgroup.h"
#include "message/control_message.h"

namespace monarch {

// The bodies of the messages between daemon, launcher and worker (message/WIRE.md, types 32 to 49), for both
// ends. Plain data. Parsers take hostile input: InvalidArgument for a missing or mistyped key, a list that is
// too long, a number out of range.

struct LauncherSetup {
  SessionId session;
  int64_t client_pid = 0;
  std::string log_path;  // empty: no log
  uint64_t worker_log_bytes_max = 0;
  uint64_t output_buffer_bytes_max = 0;
  bool use_cgroup = true;  // where one can be had
  // Where the next daemon finds this launcher; empty: there is none, and the session ends with its daemon.
  std::string resume_path;
  StartToken resume_token;
  uint64_t absence_ms = 0;  // without a daemon, until the session ends
};

// `argv`, `env` and `cwd` are any bytes but zero.
struct LaunchRequest {
  ProcAddress proc;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "K=V"
  std::string cwd;               // empty: the launcher's
  std::optional<uint32_t> umask;
  std::vector<ResourceLimit> limits;
  std::vector<int> cpus;
  std::string token;  // as bytes
  std::string boot;
  std::string label;
  std::string output_tag;  // not empty: marks its output in the client's output stream
  CgroupLimits cgroup_limits;
};

struct LaunchFailure {
  ProcAddress proc;
  std::string step;
  int error = 0;  // errno
  std::string message;
};

struct WorkerDying {
  ProcAddress proc;
  ExitStatus cause;  // unknown while both are 0
};

struct WorkerExit {
  ProcAddress proc;
  ExitStatus status;
  std::string stderr_tail;
  std::string backtrace;
  MemoryVerdict memory_kill;  // of SIGKILL
  int64_t maxrss_kib = 0;
};

struct WorkerBoot {
  SessionId session;
  ProcAddress proc;
  std::string token;
  std::string boot;
};

// Two processes share a ring; the bits are those that the other sets.
struct RingNotice {
  ProcAddress a;
  uint32_t bit_in_a = 0;
  ProcAddress b;
  uint32_t bit_in_b = 0;
};

Value ToBody(const LauncherSetup& setup);
Value ToBody(const LaunchRequest& launch);
Value ToBody(const LaunchFailure& failure);
Value ToBody(const WorkerDying& dying);
Value ToBody(const WorkerExit& exit);
Value ToBody(const WorkerBoot& boot);
Value ToBody(const RingNotice& ring);

absl::StatusOr<LauncherSetup> ParseLauncherSetup(const Value& body);
absl::StatusOr<LaunchRequest> ParseLaunchRequest(const Value& body);
absl::StatusOr<LaunchFailure> ParseLaunchFailure(const Value& body);
absl::StatusOr<WorkerDying> ParseWorkerDying(const Value& body);
absl::StatusOr<WorkerExit> ParseWorkerExit(const Value& body);
absl::StatusOr<WorkerBoot> ParseWorkerBoot(const Value& body);
absl::StatusOr<RingNotice> ParseRingNotice(const Value& body);

}  // namespace monarch
