#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/output_sink.h"

namespace monarch {

enum class OutputStream { kStdout, kStderr };

// Bounds of what waits for slow readers. Plain data.
struct SessionOutputOptions {
  size_t client_buffer_bytes_max = 4 * 1024 * 1024;  // for stdout, and again for stderr
  size_t log_buffer_bytes_max = 4 * 1024 * 1024;
};

// Where a session's workers' output goes: the client's stdout and stderr as it is, the worker log with
// labels. Threading: confined to the launcher's loop.
class SessionOutput {
 public:
  struct Log {
    std::string path;  // empty: none
    uint64_t bytes_max = 0;
  };

  SessionOutput(SessionOutputOptions options, ScopedFd out, ScopedFd err, const Log& log);

  // Whole lines, or a piece of one that took long. Never blocks.
  void Add(OutputStream stream, const std::string& label, std::string lines);
  // The client is gone: its fds are closed as soon as can be, else whoever waits for the end of its output
  // would hang.
  void CloseClient();
  // `idle` runs once, on some thread, when nothing waits to be written.
  void WhenIdle(absl::AnyInvocable<void()> idle);

 private:
  std::unique_ptr<OutputSink> out_;
  std::unique_ptr<OutputSink> err_;
  std::unique_ptr<OutputSink> log_;
  bool client_closed_ = false;
};

// `lines` with "<label>| " before each, and a line end behind the last.
std::string LabelLines(const std::string& label, const std::string& lines);

}  // namespace monarch
