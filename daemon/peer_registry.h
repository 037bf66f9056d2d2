#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/mutex.h"

namespace monarch {

// Who is behind a control connection. The session is the one through whose native socket it was opened.
struct ControlPeer {
  uid_t uid = 0;
  pid_t pid = 0;
  std::optional<SessionId> session;
  ProcAddress asker;  // with `session`
};

// Control connections by the name that gRPC gives them ("fd:12"). There is no word of a connection's end: an
// entry is overwritten when its number comes again, which is before the new connection can be heard of.
// Threading: guarded by mu_.
class PeerRegistry {
 public:
  void Put(int fd, const ControlPeer& peer) {
    MutexLock lock(mu_);
    peers_["fd:" + std::to_string(fd)] = peer;
  }
  std::optional<ControlPeer> Find(const std::string& name) const {
    MutexLock lock(mu_);
    const auto found = peers_.find(name);
    if (found == peers_.end()) return std::nullopt;
    return found->second;
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, ControlPeer> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
