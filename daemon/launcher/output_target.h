#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/scoped_fd.h"

namespace monarch {

// Where an OutputSink writes. Threading: confined to the sink's thread (made and destroyed anywhere).
class OutputTarget {
 public:
  virtual ~OutputTarget() = default;
  // Most bytes for one Write.
  virtual size_t chunk_bytes_max() const = 0;
  // Blocks until there is room or `wake_fd` is readable. True: there is room.
  virtual bool WaitForRoom(int wake_fd) = 0;
  // Takes all of `chunk` or a beginning of it: how much. An error is final.
  virtual absl::Status Write(std::string_view chunk, size_t* written) = 0;
};

// A client's stdout or stderr. The file description is shared with the client, so its flags stay as they are;
// instead each write follows a look whether there is room, and is small enough for a pipe to take it whole.
std::unique_ptr<OutputTarget> MakeFdTarget(ScopedFd fd);

// A log file, opened at the first write. At half of `bytes_max` it becomes <path>.1 and a new one begins.
// What a full disk has no room for is left out, and the log says how much, once there is room again.
std::unique_ptr<OutputTarget> MakeLogFileTarget(std::string path, size_t bytes_max);

}  // namespace monarch
