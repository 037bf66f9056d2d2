#include "daemon/launcher/output_sink.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace monarch {
namespace {

std::thread StartWithSignalsBlocked(absl::AnyInvocable<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

OutputSink::OutputSink(std::string name, std::unique_ptr<OutputTarget> target, size_t buffer_bytes_max)
    : name_(std::move(name)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      target_(std::move(target)),
      buffer_(buffer_bytes_max) {
  MONARCH_CHECK(wake_.valid());
  thread_ = StartWithSignalsBlocked([this] { Run(); });
}

OutputSink::~OutputSink() {
  Close();
  thread_.join();
}

void OutputSink::Add(std::string lines) {
  const MutexLock lock(mu_);
  if (closed_ || failed_) return;
  buffer_.Add(std::move(lines));
  changed_.NotifyOne();
}

void OutputSink::Close() {
  {
    const MutexLock lock(mu_);
    closed_ = true;
    buffer_.Clear();
    changed_.NotifyOne();
  }
  eventfd_write(wake_.get(), 1);
}

void OutputSink::WhenIdle(absl::AnyInvocable<void()> idle) {
  const MutexLock lock(mu_);
  if (closed_) return;
  idle_ = std::move(idle);
  changed_.NotifyOne();
}

void OutputSink::Run() {
  for (;;) {
    std::string chunk;
    absl::AnyInvocable<void()> idle;
    {
      const MutexLock lock(mu_);
      while (buffer_.empty() && !closed_ && !idle_) changed_.Wait(mu_);
      if (closed_) break;
      if (target_ != nullptr) chunk = buffer_.Take(target_->chunk_bytes_max());
      if (chunk.empty()) idle = std::exchange(idle_, nullptr);
    }
    if (idle) idle();
    if (!chunk.empty() && !WriteChunk(chunk)) {
      target_.reset();
      const MutexLock lock(mu_);
      failed_ = true;
      buffer_.Clear();
    }
  }
  target_.reset();
}

bool OutputSink::WriteChunk(std::string_view chunk) {
  while (!chunk.empty()) {
    if (!target_->WaitForRoom(wake_.get())) {
      const MutexLock lock(mu_);
      if (closed_) return false;
      continue;
    }
    size_t written = 0;
    if (const absl::Status status = target_->Write(chunk, &written); !status.ok()) {
      // A reader that went away is its own business.
      if (!absl::IsUnavailable(status)) {
        LogWarning("launcher", "output target given up")
            .With("target", name_)
            .With("error", status.ToString());
      }
      return false;
    }
    chunk.remove_prefix(written);
  }
  return true;
}

}  // namespace monarch
