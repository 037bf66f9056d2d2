#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"

namespace monarch {

// What a launcher keeps for its next daemon: entries that the present one hands over, with their fds, and the
// news of each process until the daemon says that it has dealt with its end. Not read, only handed on.
// Threading: confined to its caller.
class Keepsakes {
 public:
  explicit Keepsakes(size_t entries_max) : entries_max_(entries_max) {}

  // kKeep's body. InvalidArgument: no key. ResourceExhausted: too many.
  absl::Status Keep(const Value& body, std::vector<ScopedFd> fds);
  // kForget's body.
  absl::Status Forget(const Value& body);
  void AddNews(const ProcAddress& proc, const ControlMessage& message);

  // Entries by key, then news in the order of each process's life. The fds are this object's.
  using Send = absl::FunctionRef<void(const ControlMessage&, const std::vector<ScopedFd>& fds)>;
  void TellAll(Send send) const;

 private:
  struct Entry {
    Value body;
    std::vector<ScopedFd> fds;
  };
  const size_t entries_max_;
  std::map<std::string, Entry> entries_;
  std::map<ProcAddress, std::vector<ControlMessage>> news_;
};

}  // namespace monarch
