#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/scoped_fd.h"

namespace monarch {

// The word that tells of a death: a robust, process-shared mutex at the start of a shared page, held for the
// life of the process by a thread that never ends before it. The kernel marks it (FUTEX_OWNER_DIED) and wakes
// one waiter before it tears the address space down.

// Takes the mutex in `page` for the calling thread, which must live as long as the process (the main thread
// of a worker, the service thread of a client). Once per page: FailedPrecondition if it is held, or its owner
// has died.
absl::Status HoldLifeline(uint8_t* page);

// In the process whose life-line `page` is, on any thread, also in a signal handler: it will not live on, but
// end by `signal`. The watcher is woken now and not when the kernel is done with the process.
// Async-signal-safe.
void AbandonLifeline(uint8_t* page, int signal);
// The signal by which the process of the page says that it ends; 0: it has said nothing.
int AbandonedBy(const uint8_t* page);

// Sleeps on up to many life-lines (127 a thread) and tells of each death once. The kernel wakes one waiter
// only, so a life-line has one watcher. Threading: Watch and Unwatch from any thread, also in `died`; `died`
// runs on a watcher thread, with more than 127 life-lines on several at a time, and must not block. The
// destructor not in `died`.
class LifelineWatcher {
 public:
  using DiedCallback = absl::AnyInvocable<void(uint64_t key)>;
  static absl::StatusOr<std::unique_ptr<LifelineWatcher>> Create(DiedCallback died);
  virtual ~LifelineWatcher() = default;  // joins the threads; no callback afterwards

  // `doorbell_memfd` as received (checked). If the word's owner has died already, or nobody holds it, `died`
  // comes at once. AlreadyExists for a key in use; a key is free again once `died` is called for it.
  virtual absl::Status Watch(uint64_t key, ScopedFd doorbell_memfd) = 0;
  // No `died` begins for the key afterwards; one that has begun may still be running.
  virtual void Unwatch(uint64_t key) = 0;
};

}  // namespace monarch
