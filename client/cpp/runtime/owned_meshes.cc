#include "client/cpp/runtime/owned_meshes.h"

#include <algorithm>
#include <utility>

namespace monarch {

uint64_t OwnedMeshes::ActorAt(const OwnedMesh& mesh, size_t index) {
  return index < mesh.actors.size() ? mesh.actors[index] : mesh.actor;
}

void OwnedMeshes::Add(OwnedMesh mesh) { entries_.push_back({std::move(mesh), {}}); }

void OwnedMeshes::Remove(uint64_t owner, uint64_t actor, const std::string& mesh) {
  std::erase_if(entries_, [&](const Entry& entry) {
    return entry.mesh.owner == owner && entry.mesh.actor == actor && entry.mesh.mesh == mesh;
  });
}

void OwnedMeshes::RemoveProcs(uint64_t owner, const std::vector<ProcAddress>& procs) {
  const absl::flat_hash_set<ProcAddress> removed(procs.begin(), procs.end());
  std::erase_if(entries_, [&](const Entry& entry) {
    return entry.mesh.owner == owner &&
           std::all_of(entry.mesh.procs.begin(), entry.mesh.procs.end(),
                       [&](const ProcAddress& proc) { return removed.contains(proc); });
  });
}

void OwnedMeshes::RemoveOwner(uint64_t owner) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.mesh.owner == owner; });
}

bool OwnedMeshes::Has(const Entry& entry, const ProcAddress& proc) {
  const auto& procs = entry.mesh.procs;
  return std::find(procs.begin(), procs.end(), proc) != procs.end();
}

void OwnedMeshes::Describe(const OwnedMesh& mesh, size_t index, FailureEvent* event) {
  event->mesh = mesh.mesh;
  event->actor_class = mesh.actor_class;
  event->rank = static_cast<uint32_t>(index);
  event->rank_label = index < mesh.shape.size() ? mesh.shape.PointLabel(index) : "";
  event->actor = {mesh.procs[index], ActorAt(mesh, index)};
}

void OwnedMeshes::ReportOne(Entry* entry, const ProcAddress& proc, const FailureEvent& event,
                            std::vector<Report>* out) {
  if (!entry->reported.insert(proc).second) return;
  for (size_t i = 0; i < entry->mesh.procs.size(); ++i) {
    if (entry->mesh.procs[i] != proc) continue;
    Report report = {entry->mesh.owner, event};
    Describe(entry->mesh, i, &report.event);
    out->push_back(std::move(report));
  }
}

std::vector<OwnedMeshes::Report> OwnedMeshes::Died(const ProcAddress& proc, const FailureEvent& event) {
  absl::flat_hash_set<uint64_t> with_actors;
  for (const Entry& entry : entries_) {
    if (entry.mesh.actor != 0 && Has(entry, proc)) with_actors.insert(entry.mesh.owner);
  }
  std::vector<Report> out;
  for (Entry& entry : entries_) {
    if (!Has(entry, proc)) continue;
    if (entry.mesh.actor == 0 && with_actors.contains(entry.mesh.owner)) {
      entry.reported.insert(proc);
      continue;
    }
    ReportOne(&entry, proc, event, &out);
  }
  return out;
}

std::vector<OwnedMeshes::Report> OwnedMeshes::DiedBefore(const ProcAddress& proc, const FailureEvent& event) {
  std::vector<Report> out;
  if (!entries_.empty() && Has(entries_.back(), proc)) ReportOne(&entries_.back(), proc, event, &out);
  return out;
}

void OwnedMeshes::Complete(const ActorAddress& actor, FailureEvent* event) const {
  event->actor = actor;
  for (const Entry& entry : entries_) {
    const auto& procs = entry.mesh.procs;
    for (size_t i = 0; i < procs.size(); ++i) {
      if (procs[i] == actor.proc && ActorAt(entry.mesh, i) == actor.actor)
        return Describe(entry.mesh, i, event);
    }
  }
}

std::vector<ProcAddress> OwnedMeshes::AllProcs() const {
  absl::flat_hash_set<ProcAddress> procs;
  for (const Entry& entry : entries_) procs.insert(entry.mesh.procs.begin(), entry.mesh.procs.end());
  return {procs.begin(), procs.end()};
}

}  // namespace monarch
