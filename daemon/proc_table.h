#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/control_peers.h"
#include "daemon/event_log.h"
#include "daemon/process_types.h"
#include "daemon/stop_machine.h"

namespace monarch {

class NativeConnection;

// The shared pages of a process, as it handed them over in its hello; checked.
struct SharedFds {
  ScopedFd doorbell;
  ScopedFd bell;
  ScopedFd segment;
  uint64_t segment_bytes = 0;
};

// One process of a session: its client or a worker. Plain data.
struct ProcRecord {
  ProcDescription description;
  bool is_client = false;
  ActorAddress owner;
  StartToken token;  // zero once used
  std::string spawn_id;
  size_t spawn_index = 0;
  std::shared_ptr<NativeConnection> connection;  // null until it exists
  SharedFds shared;                              // invalid until its hello
  ControlPass control;                           // from its hello on
  std::optional<StopMachine> stop;
  int64_t actors_up = 0;
  std::string stop_reason;                       // asked to stop
  std::optional<FailureEvent> death;             // told to the others; it may not be reaped yet
  std::vector<EventLog::LostActor> lost_actors;  // at its death

  bool alive() const { return !death.has_value(); }
  bool introduced() const { return shared.doorbell.valid(); }
};

// The processes of one session, and how the last of those that are gone ended.
// Threading: confined to the control loop.
class ProcTable {
 public:
  explicit ProcTable(size_t tombstones_max) : tombstones_max_(tombstones_max) {}

  ProcRecord& Add(ProcRecord record);
  // Null: unknown.
  ProcRecord* Find(uint64_t proc);
  // By the whole address: another incarnation is another process.
  ProcRecord* Find(const ProcAddress& address);
  // To the tombstones, with its death.
  void Bury(uint64_t proc);
  // Of a process that was never in the table: another host's.
  void RecordEnd(const ProcAddress& address, const FailureEvent& event);
  void Remove(uint64_t proc) { procs_.erase(proc); }
  // How it ended; null: never heard of, or too long ago.
  const FailureEvent* EndOf(const ProcAddress& address) const;
  const absl::flat_hash_map<ProcAddress, FailureEvent>& ends() const { return ends_; }

  std::map<uint64_t, ProcRecord>& all() { return procs_; }
  const std::map<uint64_t, ProcRecord>& all() const { return procs_; }
  size_t workers() const;

 private:
  const size_t tombstones_max_;
  std::map<uint64_t, ProcRecord> procs_;
  absl::flat_hash_map<ProcAddress, FailureEvent> ends_;
  std::deque<ProcAddress> order_;
};

}  // namespace monarch
