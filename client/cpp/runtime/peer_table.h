#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/cpp/runtime/peer.h"

namespace monarch {

// The processes that this one has to do with.
// Threading: thread-safe (mu_).
class PeerTable {
 public:
  explicit PeerTable(const Peer::Shared& shared) : shared_(shared) {}

  // `created`: the caller has to ask for an introduction, unless it has one.
  std::shared_ptr<Peer> FindOrAdd(const ProcAddress& proc, bool* created);
  std::shared_ptr<Peer> Find(const ProcAddress& proc) const;
  void Remove(const ProcAddress& proc);
  std::vector<std::shared_ptr<Peer>> All() const;

 private:
  const Peer::Shared shared_;
  mutable Mutex mu_;
  uint64_t last_key_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<ProcAddress, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
