#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/cpp/runtime/fork_guard.h"
#include "client/cpp/runtime/inbox.h"
#include "message/doorbell.h"

namespace monarch {

// Who sleeps on which wait word of this process's doorbell, and how. A thread has one word for its life; when
// none is left it sleeps on an eventfd instead, and the service thread drains for it. Threading: thread-safe.
class WaitWords : public Waker, public std::enable_shared_from_this<WaitWords> {
 public:
  explicit WaitWords(std::shared_ptr<Doorbell> doorbell, uint32_t words = kWaitWords);

  // The calling thread's word; kServiceWord if there are none left.
  uint32_t ThreadWord();
  // Messages for actors without a word of their own ring the calling thread's from now on.
  void BindPool();
  // Wakes whoever sleeps on the word (kServiceWord: all threads without one). Within a Batch: at its end.
  void Wake(uint32_t word) override;

  // Collects the wakes of the calling thread until it goes out of scope, so that nobody is woken to wait for
  // a lock that its waker holds. The thread itself needs none: it looks before it sleeps.
  class Batch {
   public:
    Batch(WaitWords* words, uint32_t own_word);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    friend class WaitWords;
    WaitWords* const words_;
    Batch* const outer_;
    const uint32_t own_word_;
    std::vector<uint32_t> wakes_;
  };

  // Sleeps until `ready`; what makes it true must wake the thread's word afterwards. `drain` runs before each
  // look. `bell`: messages that matter ring another word, so the service thread has to drain meanwhile. OK,
  // DeadlineExceeded, or Cancelled after a signal.
  absl::Status SleepUntil(absl::FunctionRef<bool()> ready, absl::FunctionRef<void()> drain, bool bell,
                          absl::Duration timeout);
  // As above, but sleeps in poll on two fds; readable ones end it with OK.
  absl::Status PollUntil(absl::FunctionRef<bool()> ready, absl::FunctionRef<void()> drain, int fd,
                         int other_fd, absl::Duration timeout);

 private:
  friend struct ThreadWords;
  void Free(uint32_t word);
  void WakeNow(uint32_t word);
  absl::Status SleepOnFd(absl::FunctionRef<bool()> ready, absl::FunctionRef<void()> drain,
                         absl::Duration timeout);

  const uint64_t id_;  // of this object among all that ever were in the process
  const ForkGuard fork_;
  const std::shared_ptr<Doorbell> doorbell_;
  const SystemClock clock_;

  Mutex mu_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mu_);
  uint32_t pool_word_ ABSL_GUARDED_BY(mu_) = kServiceWord;
  std::vector<int> sleepers_ ABSL_GUARDED_BY(mu_);  // eventfds of threads without a word
  std::atomic<size_t> sleeper_count_{0};
};

}  // namespace monarch
