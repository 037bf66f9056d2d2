#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/introducer.h"
#include "daemon/launcher_link.h"
#include "daemon/proc_table.h"
#include "daemon/session_book.h"

namespace monarch {

// Has the session's launcher keep what the next daemon needs, as it comes to be and goes; does nothing where
// there is none to come. Threading: confined to the control loop.
class SessionKeeper {
 public:
  // `launcher` outlives its use here: until the next Use. Null: nothing is kept.
  void Use(LauncherLink* launcher) { launcher_ = launcher; }

  void KeepClient(const SessionClient& client, const ProcAddress& address);
  // Also what has changed of it.
  void KeepProc(const ProcRecord& record);
  // Until the last of its processes is buried.
  void KeepSpawn(const KeptSpawn& spawn);
  // Its end is told to whoever returns; its news need not come again.
  // `spawn_id`: that it is of.
  void Bury(const KeptEnd& end, const std::string& spawn_id);
  // Of a process's actors the first are kept, for when it ends.
  void KeepActor(const ActorRecord& actor);
  // One that has failed since, as far as it leaves room for those that live.
  void KeepFailedActor(const ActorRecord& actor);
  void ForgetActor(const ActorAddress& actor);
  void KeepFailure(const FailureEvent& event);
  void KeepHang(const KeptHang& hang);
  void ForgetHang(const ActorAddress& actor);

  // A pair's introduction: under way until both have it. The ring is the caller's.
  void KeepLink(uint64_t a, uint64_t b, const Introducer::Introduction& how, int ring_fd);
  void LinkArrived(uint64_t a, uint64_t b);
  // Those that are to be sent again to `proc`, which may have had them.
  std::vector<const KeptLink*> UnderWay(uint64_t proc) const;

  // What the last daemon had kept; `procs` has those of its processes that are left.
  void Adopt(SessionBook* book, const ProcTable& procs);

 private:
  static constexpr uint64_t kEndsMax = 4096;
  static constexpr uint64_t kFailuresMax = 256;
  static constexpr ptrdiff_t kActorsOfProcMax = 64;
  void Keep(const BookEntry& entry);
  void BuryOneOf(const std::string& spawn_id, uint64_t proc);

  // The processes of a kept spawn that are not buried.
  struct Unburied {
    uint64_t first = 0;
    size_t count = 0;
    size_t left = 0;
  };

  LauncherLink* launcher_ = nullptr;
  uint64_t next_end_ = 0, next_failure_ = 0;
  std::set<ActorAddress> actors_, hangs_;   // that are kept
  std::map<std::string, Unburied> spawns_;  // by request id
  std::map<uint64_t, std::set<uint64_t>> links_;
  std::map<std::pair<uint64_t, uint64_t>, KeptLink> under_way_;
};

}  // namespace monarch
