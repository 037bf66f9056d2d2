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

// Whose output it is. Plain data.
struct OutputSource {
  std::string label;   // in the worker log
  std::string marker;  // before each line in the client's output stream; empty: not for that
};

// Where a session's workers' output goes: the client's stdout and stderr as it is, or its output stream with
// markers; the worker log with labels. Threading: confined to the launcher's loop.
class SessionOutput {
 public:
  struct Log {
    std::string path;  // empty: none
    uint64_t bytes_max = 0;
  };

  // `buffer_bytes_max`: what waits for a reader that is slow; four times as much for the output stream, whose
  // reader formats the lines. `marked`: the output stream; invalid: none, and marked output goes as it is.
  SessionOutput(size_t buffer_bytes_max, ScopedFd out, ScopedFd err, ScopedFd marked, const Log& log);

  // Whole lines, or a piece of one that took long. Never blocks.
  void Add(OutputStream stream, const OutputSource& source, std::string lines);
  // Its process has ended, and all that it printed was added.
  void AddEnd(const OutputSource& source);
  // The client is gone: its fds are closed as soon as can be, else whoever waits for the end of its output
  // would hang.
  void CloseClient();
  // `idle` runs once, on some thread, when nothing waits to be written.
  void WhenIdle(absl::AnyInvocable<void()> idle);

 private:
  std::unique_ptr<OutputSink> out_;
  std::unique_ptr<OutputSink> err_;
  std::unique_ptr<OutputSink> marked_;
  std::unique_ptr<OutputSink> log_;
  bool client_closed_ = false;
};

// `lines` with "<label>| " before each, and a line end behind the last.
std::string LabelLines(const std::string& label, const std::string& lines);
// `lines` as they stand in an output stream (WIRE.md).
std::string MarkLines(const std::string& marker, OutputStream stream, const std::string& lines);

}  // namespace monarch
