#include "daemon/launcher/output_drain.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"

namespace monarch {
namespace {

// One read; also the least a pipe holds, so that a busy worker takes a turn, not the loop.
constexpr size_t kReadBytes = 64 * 1024;
// Reads of DrainNow: the largest pipe an unprivileged process can ask for is 1 MiB.
constexpr int kDrainReadsMax = 16;
// Bounds what one worker can hold back, and thereby the largest piece that goes out as one.
constexpr size_t kLineBytesMax = 64 * 1024;
// An unfinished line shows after this. Too short tears lines written in steps, too long hides prompts and
// dots.
constexpr absl::Duration kFlushAfter = absl::Milliseconds(300);

}  // namespace

OutputDrain::OutputDrain(EventLoop* loop, ScopedFd pipe, LinesCallback lines)
    : loop_(loop), lines_(std::move(lines)), pipe_(std::move(pipe)), assembler_(kLineBytesMax) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  const absl::Status watched = loop_->WatchFd(pipe_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); });
  if (!watched.ok()) {
    LogError("launcher", "cannot watch a worker's output").With("error", watched.ToString());
    pipe_.reset();
  }
}

OutputDrain::~OutputDrain() { Finish(); }

bool OutputDrain::ReadOnce() {
  char buffer[kReadBytes];
  const ssize_t got = read(pipe_.get(), buffer, sizeof(buffer));
  if (got < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) return false;
  }
  if (got <= 0) {
    Finish();
    return false;
  }
  std::string lines = assembler_.Add(std::string_view(buffer, static_cast<size_t>(got)));
  if (!lines.empty()) lines_(std::move(lines));
  return true;
}

void OutputDrain::OnReadable() {
  ReadOnce();
  if (!ended()) ArmFlush();
}

void OutputDrain::ArmFlush() {
  if (assembler_.empty() || flush_armed_) return;
  flush_armed_ = true;
  flush_timer_ = loop_->RunAfter(kFlushAfter, [this] {
    flush_armed_ = false;
    if (!assembler_.empty()) lines_(assembler_.Flush());
  });
}

void OutputDrain::DrainNow() {
  for (int i = 0; i < kDrainReadsMax && !ended(); ++i) {
    if (!ReadOnce()) break;
  }
  if (!assembler_.empty()) lines_(assembler_.Flush());
}

void OutputDrain::Finish() {
  if (pipe_.valid()) {
    loop_->Unwatch(pipe_.get());
    pipe_.reset();
  }
  if (flush_armed_) loop_->Cancel(flush_timer_);
  flush_armed_ = false;
  if (!assembler_.empty()) lines_(assembler_.Flush());
}

}  // namespace monarch
