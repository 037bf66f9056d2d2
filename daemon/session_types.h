#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/native_connection.h"
#include "daemon/proc_table.h"
#include "daemon/session_hosts.h"
#include "message/mesh_restarts.h"

namespace monarch {

enum class SessionState { kRunning, kEnding, kSweeping, kGone };

// How many of those that ended a session remembers.
inline constexpr size_t kTombstonesMax = 4096;

struct ActorRecord {
  ActorAddress address;
  std::string name;
  std::string actor_class;
  std::string mesh;
  uint32_t rank = 0;
  std::string rank_label;
  ActorAddress owner;
  uint32_t incarnation = 1;  // of its mesh when it was made
  bool failed = false;
  std::optional<MeshRestarts> restarts = std::nullopt;  // of the mesh that it supervises
};

// What a session's part on this host is known by.
struct SessionIdentity {
  SessionId id;
  SessionId mark;  // of its processes' environment: another one for each part
  ProcAddress client;
  bool is_guest = false;
  StartToken ticket;
};

// The client of a session, on this host.
struct SessionClient {
  uid_t uid = 0;
  pid_t pid = 0;
  std::string name;
  ScopedFd pidfd;  // invalid: it was dead already
  SharedFds shared;
  ScopedFd out;
  ScopedFd err;
  ScopedFd output_stream;  // invalid: it has none
  std::shared_ptr<NativeConnection>
      connection;  // its hello has been read, the welcome is the session's to send
  uint32_t hello_request = 0;
};

// The home of a session that is a guest on this host.
struct SessionHome {
  SessionId session;
  AttachedHost host;
  ProcAddress client;
  int64_t client_pid = 0;
  std::string client_name;
  uid_t uid = 0;
  StartToken ticket;
};

}  // namespace monarch
