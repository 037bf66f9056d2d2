#pragma once

#include <cstdint>
#include <string>

#include "base/event_loop.h"
#include "daemon/event_log.h"
#include "proto/monarch/v1/admin.pb.h"

namespace monarch {

// The failures of the log, the newest first.
v1::GetFailuresResponse FailuresOf(const EventLog& log);

// Keeps a private daemon's failures in a file beside its run directory (proto/failure_file.h), so that
// `monarchctl why` can tell of them after the daemon's end. The file is written a moment after a failure,
// as a whole and by rename, and once more at the end; without a failure there is none. Of the files that
// daemons of this user left, the newest stay. Threading: confined to the control loop.
class FailureKeeper {
 public:
  FailureKeeper(EventLoop* loop, EventLog* log, const std::string& run_dir);
  ~FailureKeeper();
  FailureKeeper(const FailureKeeper&) = delete;
  FailureKeeper& operator=(const FailureKeeper&) = delete;

 private:
  void Write();

  EventLoop* const loop_;
  EventLog* const log_;
  const std::string folder_;
  const std::string path_;
  uint64_t subscription_;
  bool waiting_ = false;
  EventLoop::TimerId timer_{};
};

}  // namespace monarch
