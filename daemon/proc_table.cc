#include "daemon/proc_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace monarch {

ProcRecord& ProcTable::Add(ProcRecord record) {
  const uint64_t proc = record.description.address.proc;
  const auto [it, is_new] = procs_.emplace(proc, std::move(record));
  MONARCH_CHECK(is_new);
  return it->second;
}

ProcRecord* ProcTable::Find(uint64_t proc) {
  const auto found = procs_.find(proc);
  return found == procs_.end() ? nullptr : &found->second;
}

ProcRecord* ProcTable::Find(const ProcAddress& address) {
  ProcRecord* record = Find(address.proc);
  return record != nullptr && record->description.address == address ? record : nullptr;
}

void ProcTable::Bury(uint64_t proc) {
  const auto found = procs_.find(proc);
  MONARCH_CHECK(found != procs_.end() && found->second.death.has_value());
  RecordEnd(found->second.description.address, *found->second.death);
  procs_.erase(found);
}

void ProcTable::RecordEnd(const ProcAddress& address, const FailureEvent& event) {
  if (!ends_.insert_or_assign(address, event).second) return;
  order_.push_back(address);
  if (order_.size() <= tombstones_max_) return;
  ends_.erase(order_.front());
  order_.pop_front();
}

const FailureEvent* ProcTable::EndOf(const ProcAddress& address) const {
  const auto end = ends_.find(address);
  if (end != ends_.end()) return &end->second;
  const auto found = procs_.find(address.proc);
  if (found == procs_.end() || found->second.description.address != address || found->second.alive())
    return nullptr;
  return &*found->second.death;
}

size_t ProcTable::workers() const {
  return static_cast<size_t>(
      std::count_if(procs_.begin(), procs_.end(), [](const auto& entry) { return !entry.second.is_client; }));
}

}  // namespace monarch
