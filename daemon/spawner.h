#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "daemon/proc_table.h"
#include "daemon/process_types.h"
#include "daemon/spawn_machine.h"

namespace monarch {

// The spawns of one session: executes what SpawnMachine decides, joins repeated requests, and words the
// errors. Threading: confined to the control loop.
class Spawner {
 public:
  using Reply = absl::AnyInvocable<void(const SpawnResult&)>;

  // What a spawn does to the session.
  class Host {
   public:
    virtual ~Host() = default;
    // Makes the record of one rank and orders its launch.
    virtual absl::StatusOr<ProcDescription> StartProc(const SpawnRequest& request, size_t index) = 0;
    // Ends it at once; its end is reported as any other.
    virtual void KillProc(uint64_t proc) = 0;
    // All are ready; before the asker is told.
    virtual void OnSpawned(const SpawnRequest& request, const std::vector<ProcDescription>& procs) = 0;
  };

  Spawner(Host* host, absl::Duration default_phase_timeout)
      : host_(host), default_phase_timeout_(default_phase_timeout) {}

  // Whether this request is known, so that it needs no room.
  bool Knows(const std::string& request_id) const { return spawns_.contains(request_id); }
  // `reply` comes once; possibly in this call.
  void Spawn(SpawnRequest request, absl::Duration now, Reply reply);
  // One that the last daemon had finished, for its repetition.
  void AddFinished(SpawnRequest request, std::vector<ProcDescription> procs);

  // Of a process with a spawn_id; the events as SpawnMachine has them.
  void OnLaunched(const ProcRecord& record, absl::Duration now);
  void OnConnected(const ProcRecord& record, absl::Duration now);
  void OnReady(const ProcRecord& record, absl::Duration now);
  void OnDied(const ProcRecord& record, const FailureEvent& event, absl::Duration now);
  void OnGone(const ProcRecord& record, const FailureEvent& event, absl::Duration now);
  // Spawns that the process asked for, or all.
  void AbandonOwnedBy(const ProcAddress& owner, const std::string& reason, absl::Duration now);
  void AbandonAll(const std::string& reason, absl::Duration now);

  void OnTime(absl::Duration now);
  std::optional<absl::Duration> NextDeadline() const;

 private:
  struct Entry {
    SpawnRequest request;
    SpawnMachine machine;
    std::vector<ProcDescription> procs;
    std::vector<Reply> replies;
    std::optional<SpawnResult> result;
  };
  // Answers kept for repeated requests; of older ones a repetition spawns anew.
  static constexpr size_t kResultsMax = 256;

  // The spawn that the process is of. Null: it is over; or the process is of an attempt at it that the last
  // daemon had begun, whose end is not to be taken for that of the one that is under way.
  Entry* FindRunning(const ProcRecord& record);
  void Execute(Entry* spawn, const SpawnMachine::Actions& actions);
  void Finish(Entry* spawn);
  SpawnResult ResultOf(const Entry& spawn) const;

  // Constant after construction.
  Host* const host_;
  const absl::Duration default_phase_timeout_;

  // Confined to the loop.
  std::map<std::string, Entry> spawns_;
  std::deque<std::string> finished_;
};

}  // namespace monarch
