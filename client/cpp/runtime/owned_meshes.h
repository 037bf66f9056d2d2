#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "client/cpp/runtime/runtime.h"

namespace monarch {

// Who has to be told of which death. Pure.
// Threading: guarded by its owner.
class OwnedMeshes {
 public:
  struct Report {
    uint64_t owner = 0;
    FailureEvent event;
  };

  void Add(OwnedMesh mesh);
  void Remove(uint64_t owner, uint64_t actor, const std::string& mesh);
  // A mesh of procs, whose name another may have too, and the owner's meshes of actors on them.
  void RemoveProcs(uint64_t owner, const std::vector<ProcAddress>& procs);
  void RemoveOwner(uint64_t owner);
  // The death of `proc`: for each owner with actor meshes there, one report for each of their ranks; for an
  // owner with only procs there, one for those. Nothing is reported twice.
  std::vector<Report> Died(const ProcAddress& proc, const FailureEvent& event);
  // The same for the mesh that was added last.
  std::vector<Report> DiedBefore(const ProcAddress& proc, const FailureEvent& event);
  // Fills in what is known here about the actor: mesh, rank, class.
  void Complete(const ActorAddress& actor, FailureEvent* event) const;
  std::vector<ProcAddress> AllProcs() const;

 private:
  struct Entry {
    OwnedMesh mesh;
    absl::flat_hash_set<ProcAddress> reported;
  };
  static uint64_t ActorAt(const OwnedMesh& mesh, size_t index);
  static void Describe(const OwnedMesh& mesh, size_t index, FailureEvent* event);
  static void ReportOne(Entry* entry, const ProcAddress& proc, const FailureEvent& event,
                        std::vector<Report>* out);
  static bool Has(const Entry& entry, const ProcAddress& proc);

  std::vector<Entry> entries_;
};

}  // namespace monarch
