#include "daemon/control_peers.h"

#include <sys/socket.h>

#include <utility>

namespace monarch {

ControlPass::ControlPass(ControlPass&& other) noexcept
    : peers_(std::exchange(other.peers_, nullptr)),
      token_(other.token_),
      connection_(std::move(other.connection_)) {}

ControlPass& ControlPass::operator=(ControlPass&& other) noexcept {
  std::swap(peers_, other.peers_);
  std::swap(token_, other.token_);
  std::swap(connection_, other.connection_);
  return *this;
}

ControlPass::~ControlPass() {
  if (peers_ != nullptr) peers_->Forget(token_);
  if (connection_.valid()) shutdown(connection_.get(), SHUT_RDWR);
}

std::optional<ControlPass> ControlPeers::Admit(const StartToken& token, const ControlPeer& peer) {
  MutexLock lock(mu_);
  if (!peers_.try_emplace(token, peer).second) return std::nullopt;
  return ControlPass(this, token);
}

std::optional<ControlPeer> ControlPeers::Find(const StartToken& token) const {
  MutexLock lock(mu_);
  const auto found = peers_.find(token);
  if (found == peers_.end()) return std::nullopt;
  return found->second;
}

size_t ControlPeers::size() const {
  MutexLock lock(mu_);
  return peers_.size();
}

void ControlPeers::Forget(const StartToken& token) {
  MutexLock lock(mu_);
  peers_.erase(token);
}

}  // namespace monarch
