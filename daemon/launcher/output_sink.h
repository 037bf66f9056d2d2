#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/output_buffer.h"
#include "daemon/launcher/output_target.h"

namespace monarch {

// Carries output to one target on a thread of its own, so that a reader that is stuck, or a slow disk, blocks
// neither the caller nor another sink. Threading: thread-safe. Callbacks run on the sink's thread.
class OutputSink {
 public:
  // `name`: for the log line that tells why a target was given up.
  OutputSink(std::string name, std::unique_ptr<OutputTarget> target, size_t buffer_bytes_max);
  // Closes and waits for the thread: for ever, if the target blocks inside a write.
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  // Never blocks. Without effect after Close and after an error of the target.
  void Add(std::string lines);
  // Throws away what waits and destroys the target as soon as its thread can.
  void Close();
  // `idle` runs once when nothing waits any more (soon, if so now, or if the target is gone); not after
  // Close. Replaces an earlier one.
  void WhenIdle(absl::AnyInvocable<void()> idle);

 private:
  void Run();
  bool WriteChunk(std::string_view chunk);

  // Constant after construction.
  const std::string name_;
  const ScopedFd wake_;

  // Confined to the thread.
  std::unique_ptr<OutputTarget> target_;

  Mutex mu_;
  OutputBuffer buffer_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  absl::AnyInvocable<void()> idle_ ABSL_GUARDED_BY(mu_);
  CondVar changed_;

  std::thread thread_;
};

}  // namespace monarch
