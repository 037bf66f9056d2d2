#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/failure_event.h"
#include "base/ids.h"
#include "daemon/process_types.h"
#include "tests/sim/world.h"

namespace monarch::sim {

class Member;

// What truly happened, and the rules that daemons' words are held against.
// Threading: confined to the simulation's thread.
class Ledger {
 public:
  struct Life {
    ProcAddress address;
    Member* process = nullptr;
    std::string boot;  // of a worker: which rank of which spawn it is
    std::optional<absl::Duration> welcomed;
    std::optional<absl::Duration> readied;
    std::optional<absl::Duration> died;
  };
  struct Spawn {
    std::string id;
    std::string mesh;
    Member* asker = nullptr;
    size_t ranks = 0;
    std::vector<int> hosts;  // of each rank
    absl::Duration asked;
    int expected = 1;  // it was asked for so often
    int answers = 0;
    bool succeeded = false;
    bool excused = false;  // the daemon that was asked has ended
    absl::Duration most;   // until the answer
    std::vector<ProcAddress> procs;
  };
  struct Stop {
    Member* asker = nullptr;
    std::vector<ProcAddress> procs;
    absl::Duration asked;
    int answers = 0;
    bool excused = false;
    absl::Duration most;
  };

  explicit Ledger(World* world) : world_(world) {}

  void OnLaunch(const ProcAddress& address, Member* process, const std::string& boot);
  void OnWelcome(Member& member);
  void OnReady(Member& member);
  void OnDeath(const ProcAddress& address);
  void OnNotice(Member& receiver, const ProcAddress& dead, const FailureEvent& event, int count);
  // More is told of a death that was not told.
  void OnEarlyDetail(const Member& receiver, const ProcAddress& dead);
  // A host that others may have taken for dead, now or before: its living may be called unreachable.
  void Doubt(int host) { doubted_.insert(host); }
  // Its launcher is killed: what it was ordered to start may never have been.
  void OnLauncherKilled(int host) { without_launcher_.insert(host); }
  // No trouble but with processes: what is asked for has to be done in its time.
  void set_calm(bool calm) { calm_ = calm; }
  bool doubted(int host) const { return doubted_.contains(host); }

  void CountFrame() { ++frames_; }
  size_t frames() const { return frames_; }

  Spawn* NewSpawn();
  void OnSpawned(Spawn* spawn, const SpawnResult& result);
  Stop* NewStop();
  void OnStopped(Stop* stop, const std::vector<FailureEvent>& ends);
  const std::vector<std::unique_ptr<Spawn>>& spawns() const { return spawns_; }
  const std::vector<std::unique_ptr<Stop>>& stops() const { return stops_; }
  const std::map<ProcAddress, Life>& lives() const { return lives_; }

  // When all faults are over and everything had time to settle, while clients live.
  void CheckSettled();
  // A while after the end of a client: nothing of its session is left anywhere.
  void CheckEnded(const Member& client);

 private:
  void CheckSpawns();
  void CheckNotices(const Member& receiver);
  void CheckFrames(const Member& sender);
  void CheckTime(const char* what, absl::Duration asked, absl::Duration most);

  World* const world_;
  std::map<ProcAddress, Life> lives_;
  std::set<int> doubted_;
  std::set<int> without_launcher_;
  // When somebody on that host was first told of the death.
  std::map<std::pair<ProcAddress, int>, absl::Duration> told_;
  bool calm_ = false;
  size_t frames_ = 0;
  std::vector<std::unique_ptr<Spawn>> spawns_;
  std::vector<std::unique_ptr<Stop>> stops_;
};

}  // namespace monarch::sim
