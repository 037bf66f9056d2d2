#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace monarch {

// Counts the control connections of each process, so that none takes all of the daemon's fds. The server
// closes them and says nothing: what is still open is looked up when another comes. Threading: confined to
// its owner.
class ControlConnections {
 public:
  explicit ControlConnections(int64_t per_proc_max) : per_proc_max_(per_proc_max) {}

  // Counts the socket, which somebody else closes later. ResourceExhausted, naming the limit: `owner` has too
  // many.
  absl::Status Add(int fd, const std::string& owner);

 private:
  // A cookie is a socket's own and never used again; its fd may be another socket's by now.
  struct Connection {
    int fd;
    uint64_t cookie;
  };

  const int64_t per_proc_max_;
  std::map<std::string, std::vector<Connection>> open_;
};

}  // namespace monarch
