#include "client/cpp/runtime/peer_table.h"

namespace monarch {

std::shared_ptr<Peer> PeerTable::FindOrAdd(const ProcAddress& proc, bool* created) {
  MutexLock lock(mu_);
  std::shared_ptr<Peer>& peer = peers_[proc];
  *created = peer == nullptr;
  if (*created) peer = std::make_shared<Peer>(proc, ++last_key_, shared_);
  return peer;
}

std::shared_ptr<Peer> PeerTable::Find(const ProcAddress& proc) const {
  MutexLock lock(mu_);
  const auto it = peers_.find(proc);
  return it == peers_.end() ? nullptr : it->second;
}

void PeerTable::Remove(const ProcAddress& proc) {
  MutexLock lock(mu_);
  peers_.erase(proc);
}

std::vector<std::shared_ptr<Peer>> PeerTable::All() const {
  MutexLock lock(mu_);
  std::vector<std::shared_ptr<Peer>> all;
  all.reserve(peers_.size());
  for (const auto& [address, peer] : peers_) all.push_back(peer);
  return all;
}

}  // namespace monarch
