#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/line_assembler.h"

namespace monarch {

// Reads one worker's stdout or stderr as it comes and gives it out in whole lines; an unfinished line after a
// pause. Threading: confined to the loop.
class OutputDrain {
 public:
  using LinesCallback = absl::AnyInvocable<void(std::string lines)>;

  // `pipe`: the read end; made non-blocking here (nobody shares it).
  OutputDrain(EventLoop* loop, ScopedFd pipe, LinesCallback lines);
  ~OutputDrain();
  OutputDrain(const OutputDrain&) = delete;
  OutputDrain& operator=(const OutputDrain&) = delete;

  // Gives out what is there now, the unfinished line included, without waiting for the end: a grandchild may
  // hold the pipe open for long, and may go on writing, so this is bounded by what a pipe holds.
  void DrainNow();
  bool ended() const { return !pipe_.valid(); }

 private:
  // True: there may be more.
  bool ReadOnce();
  void OnReadable();
  void ArmFlush();
  void Finish();

  EventLoop* const loop_;
  LinesCallback lines_;
  ScopedFd pipe_;
  LineAssembler assembler_;
  EventLoop::TimerId flush_timer_ = 0;
  bool flush_armed_ = false;
};

}  // namespace monarch
