#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "client/cpp/runtime/deadlock_probe.h"
#include "client/cpp/runtime/runtime.h"

namespace monarch {

// Finds actors that wait for each other, and no others: edge chasing (Chandy, Misra, Haas: Distributed
// Deadlock Detection, 1983), with a second round that makes a verdict certain. An actor that waits is an edge
// to each callee that still owes it an answer, if the callee waits too; for only the callee's thread answers.
//   search    From each wait, along all calls that are owed, once for each wait met. One that comes back to
//             its actor has met every wait of a cycle; but an answer may be under way.
//   confirm   Back along the cycle, each time from callee to caller, behind what the callee has answered. So
//             where the caller still waits, the callee has not. Then all waits lasted from the first round
//             into the second, and at the moment between the two no call of the cycle could be answered.
//   verdict   One call of the cycle fails, the same whoever found the cycle: a queued one is taken from its
//             callee; if there is none, one caller waits no longer.
// The last wait of a cycle finds all others, so each is found, though not before all its waits have begun
// their search. Pure. Threading: confined to one thread.
class DeadlockFinder {
 public:
  struct Waiting {
    uint64_t wait = 0;
    uint64_t call = 0;  // the answers that it waits for
    std::string name, endpoint;
    std::vector<CallTarget> owed;  // who must answer before it ends, without exception
  };

  // This process, and the way to others. What is sent to a process arrives there in order, and behind the
  // answers that were sent before.
  class World {
   public:
    virtual ~World() = default;
    // None: the actor does not wait, or has what it waits for.
    virtual std::optional<Waiting> WaitOf(uint64_t actor) = 0;
    // False: this search was at this wait already.
    virtual bool Visit(uint64_t actor, uint64_t wait, const ProcAddress& searcher, uint64_t search) = 0;
    // The endpoint that the call asks for; none if it is not queued at the actor.
    virtual std::optional<std::string> Queued(uint64_t actor, const ProcAddress& caller, uint64_t call) = 0;
    // Whether others than the actor's thread may answer calls that it has taken.
    virtual bool OthersAnswer(uint64_t actor) = 0;
    virtual void Send(const ProcAddress& to, const Probe& probe) = 0;
    // Takes the call from the actor's queue, if it is still there, and tells its caller of the cycle.
    virtual void Refuse(uint64_t actor, const ProcAddress& caller, uint64_t call,
                        const std::vector<std::string>& cycle) = 0;
    // Puts an answer that tells of the cycle in place of the one that `target` owes.
    virtual void GiveUp(uint64_t call, const CallTarget& target, const std::vector<std::string>& cycle) = 0;
  };

  // Paths of more than `steps_max` waits are not followed.
  DeadlockFinder(const ProcAddress& self, size_t steps_max, World* world)
      : self_(self), steps_max_(steps_max), world_(world) {}

  // Searches from an actor of this process whose wait has lasted for a while. May be repeated.
  void Start(uint64_t actor);
  void Handle(Probe probe);

 private:
  void Search(Probe probe);
  void Confirm(Probe probe);
  void Judge(const Probe& probe);
  void Extend(const Probe& probe, uint64_t actor, const Waiting& waiting);

  const ProcAddress self_;
  const size_t steps_max_;
  World* const world_;
  uint64_t last_search_ = 0;
};

}  // namespace monarch
