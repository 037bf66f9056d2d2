#pragma once

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"

namespace monarch {

// In whose name a request on the control plane is made.
struct ControlPeer {
  SessionId session;
  ProcAddress asker;
};

class ControlPeers;

// While it exists, requests that name its token are the peer's.
// Threading: confined to its owner; the registry outlives it.
class ControlPass {
 public:
  ControlPass() = default;
  ControlPass(ControlPass&& other) noexcept;
  ControlPass& operator=(ControlPass&& other) noexcept;
  ~ControlPass();

  const StartToken& token() const { return token_; }
  // A duplicate of the connection on which it is used alone: shut down with the pass, for the other end may
  // be a host without power, which never closes.
  void Hold(ScopedFd connection) { connection_ = std::move(connection); }

 private:
  friend class ControlPeers;
  ControlPass(ControlPeers* peers, const StartToken& token) : peers_(peers), token_(token) {}

  ControlPeers* peers_ = nullptr;
  StartToken token_;
  ScopedFd connection_;
};

// Who may ask for more than a listing, by a token that nobody else knows and that is never given out twice.
// gRPC names a connection by its fd, which another may have by the time a request is looked at: such a name
// proves nothing. Threading: thread-safe (mu_).
class ControlPeers {
 public:
  ControlPass Issue(const ControlPeer& peer) { return *Admit(StartToken::Random(), peer); }
  // Of a token that another daemon made. None: it is in use.
  std::optional<ControlPass> Admit(const StartToken& token, const ControlPeer& peer);
  std::optional<ControlPeer> Find(const StartToken& token) const;
  size_t size() const;

 private:
  friend class ControlPass;
  void Forget(const StartToken& token);

  mutable Mutex mu_;
  absl::flat_hash_map<StartToken, ControlPeer> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
