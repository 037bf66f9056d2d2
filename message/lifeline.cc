#include "message/lifeline.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "message/doorbell.h"

namespace monarch {
namespace {

// The kernel's word is the first int of glibc's mutex; its value is the owner's thread id and the kernel's
// flags.
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);
static_assert(sizeof(pthread_mutex_t{}.__data.__lock) == sizeof(uint32_t));
constexpr size_t kAbandonedOffset = 64;  // of the signal's number, behind the mutex
static_assert(sizeof(pthread_mutex_t) <= kAbandonedOffset);

constexpr size_t kWordsPerThread = FUTEX_WAITV_MAX - 1;  // the last one is the thread's own
constexpr size_t kLifelineBytes = 4096;
constexpr int kArmTriesMax = 16;
constexpr uint64_t kSliceNs = 100'000;  // the kernel's minimum

#ifdef SYS_futex_waitv
constexpr long kSysFutexWaitv = SYS_futex_waitv;
#else
constexpr long kSysFutexWaitv = 449;
#endif

using Word = std::atomic_ref<uint32_t>;

futex_waitv WaitEntry(const uint32_t* word, uint32_t expected, uint32_t flags) {
  futex_waitv entry = {};
  entry.val = expected;
  entry.uaddr = reinterpret_cast<uintptr_t>(word);
  entry.flags = FUTEX_32 | flags;
  return entry;
}

// Returns when any word was woken or does not have its value. 0 or errno.
int FutexWaitv(std::vector<futex_waitv>* entries) {
  const long woken = syscall(kSysFutexWaitv, entries->data(), entries->size(), 0, nullptr, CLOCK_MONOTONIC);
  return woken >= 0 ? 0 : errno;
}

// Starts a thread that takes no signal of the process.
template <typename Body>
absl::StatusOr<std::thread> StartBlocked(Body body) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  MONARCH_CHECK(pthread_sigmask(SIG_SETMASK, &all, &old) == 0);
  absl::StatusOr<std::thread> thread = absl::InternalError("");
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    thread = ErrnoStatus("start a watcher thread", error.code().value());
  }
  MONARCH_CHECK(pthread_sigmask(SIG_SETMASK, &old, nullptr) == 0);
  return thread;
}

// So that the watcher runs at its wake although the dying process, which woke it, still has milliseconds of
// tearing down before it: where the scheduler takes a thread's own slice (Linux 6.12), the shorter one
// preempts. Elsewhere nothing changes.
void AskForAShortSlice() {
  struct {
    uint32_t size = 48;
    uint32_t policy = 0;  // SCHED_OTHER
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime_ns = kSliceNs;
    uint64_t deadline_ns = 0;
    uint64_t period_ns = 0;
  } attributes;
  static_assert(sizeof(attributes) == 48);
  errno = 0;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  if (errno == 0) syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// One watched life-line.
// Threading: `owner` is confined to the thread that watches it; the rest is constant.
struct Watched {
  uint64_t key = 0;
  Mapping mapping;
  uint32_t owner = 0;  // thread id at the first look

  uint32_t* word() const { return reinterpret_cast<uint32_t*>(mapping.data()); }

  // Asks the kernel to wake us, and returns the value to sleep on; nothing if the owner is dead. The word is
  // hostile: whatever a living owner's word cannot hold counts as a death (the process's end is confirmed
  // elsewhere).
  std::optional<uint32_t> Arm() {
    Word value(*word());
    uint32_t seen = value.load();
    for (int i = 0; i < kArmTriesMax; ++i) {
      const uint32_t holder = seen & FUTEX_TID_MASK;
      if (holder == 0 || (seen & FUTEX_OWNER_DIED) != 0) return std::nullopt;
      if (owner == 0) owner = holder;
      if (holder != owner) return std::nullopt;
      if ((seen & FUTEX_WAITERS) != 0) return seen;
      // Never onto a word that has just become free: a later lock of it would wait for an unlock that never
      // comes.
      if (value.compare_exchange_strong(seen, seen | FUTEX_WAITERS)) return seen | FUTEX_WAITERS;
    }
    return std::nullopt;
  }
};
using WatchedPtr = std::shared_ptr<Watched>;

// One thread and the life-lines it sleeps on.
// Threading: thread-safe (mu_); `died` is called with no lock held.
class WatchThread {
 public:
  // Called before `died`; false if the key is not watched (any more).
  using Claim = absl::AnyInvocable<bool(const WatchedPtr&)>;

  WatchThread(Claim claim, LifelineWatcher::DiedCallback* died) : claim_(std::move(claim)), died_(died) {}

  absl::Status Start() {
    MONARCH_ASSIGN_OR_RETURN(thread_, StartBlocked([this] { Run(); }));
    return absl::OkStatus();
  }

  ~WatchThread() {
    if (!thread_.joinable()) return;
    {
      MutexLock lock(mu_);
      stopping_ = true;
    }
    Nudge();
    thread_.join();
  }

  // False: full.
  bool TryAdd(const WatchedPtr& watched) {
    {
      MutexLock lock(mu_);
      if (watched_.size() == kWordsPerThread) return false;
      watched_.push_back(watched);
    }
    Nudge();
    return true;
  }

  void Remove(const WatchedPtr& watched) {
    {
      MutexLock lock(mu_);
      watched_.erase(std::remove(watched_.begin(), watched_.end(), watched), watched_.end());
    }
    // The thread drops its own reference, and so the mapping.
    Nudge();
  }

 private:
  void Nudge() {
    Word(nudges_).fetch_add(1);
    syscall(SYS_futex, &nudges_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
  }

  void Run() {
    AskForAShortSlice();
    std::vector<futex_waitv> entries;
    while (true) {
      // Read before the list: a change after the look at the list changes this number, and the sleep ends at
      // once.
      const uint32_t nudges = Word(nudges_).load();
      std::vector<WatchedPtr> watched;
      {
        MutexLock lock(mu_);
        if (stopping_) return;
        watched = watched_;
      }
      entries.clear();
      entries.push_back(WaitEntry(&nudges_, nudges, FUTEX_PRIVATE_FLAG));
      bool any_died = false;
      for (const WatchedPtr& w : watched) {
        const std::optional<uint32_t> expected = w->Arm();
        if (expected) {
          entries.push_back(WaitEntry(w->word(), *expected, 0));
        } else {
          any_died = true;
          Tell(w);
        }
      }
      if (any_died) continue;
      const int error = FutexWaitv(&entries);
      MONARCH_CHECK(error == 0 || error == EAGAIN || error == EINTR || error == ENOMEM);
    }
  }

  void Tell(const WatchedPtr& watched) {
    {
      MutexLock lock(mu_);
      // One told after the stop has begun would come too late for its receiver.
      if (stopping_) return;
      watched_.erase(std::remove(watched_.begin(), watched_.end(), watched), watched_.end());
    }
    if (claim_(watched)) (*died_)(watched->key);
  }

  Claim claim_;
  LifelineWatcher::DiedCallback* const died_;
  std::thread thread_;

  alignas(Word::required_alignment) uint32_t nudges_ = 0;

  Mutex mu_;
  std::vector<WatchedPtr> watched_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

// Threading: thread-safe (mu_).
class FutexLifelineWatcher : public LifelineWatcher {
 public:
  explicit FutexLifelineWatcher(DiedCallback died) : died_(std::move(died)) {}

  ~FutexLifelineWatcher() override {
    // Outside the lock, which the threads take.
    std::vector<std::unique_ptr<WatchThread>> threads;
    {
      MutexLock lock(mu_);
      threads.swap(threads_);
      keys_.clear();
    }
  }

  absl::Status Watch(uint64_t key, ScopedFd doorbell_memfd) override {
    MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(doorbell_memfd.get(), kDoorbellBytes, kDoorbellBytes).status());
    auto watched = std::make_shared<Watched>();
    watched->key = key;
    MONARCH_ASSIGN_OR_RETURN(watched->mapping, Mapping::Map(doorbell_memfd.get(), kLifelineBytes));

    MutexLock lock(mu_);
    if (keys_.contains(key))
      return absl::AlreadyExistsError(absl::StrCat("life-line ", key, " is watched already"));
    for (const auto& thread : threads_) {
      if (!thread->TryAdd(watched)) continue;
      keys_[key] = Place{watched, thread.get()};
      return absl::OkStatus();
    }
    auto thread = std::make_unique<WatchThread>([this](const WatchedPtr& w) { return Claim(w); }, &died_);
    MONARCH_RETURN_IF_ERROR(thread->Start());
    MONARCH_CHECK(thread->TryAdd(watched));
    keys_[key] = Place{watched, thread.get()};
    threads_.push_back(std::move(thread));
    return absl::OkStatus();
  }

  void Unwatch(uint64_t key) override {
    MutexLock lock(mu_);
    const auto found = keys_.find(key);
    if (found == keys_.end()) return;
    found->second.thread->Remove(found->second.watched);
    keys_.erase(found);
  }

 private:
  struct Place {
    WatchedPtr watched;
    WatchThread* thread = nullptr;  // of threads_
  };

  // Whoever takes the key out of the table first, a death or Unwatch, has it.
  bool Claim(const WatchedPtr& watched) {
    MutexLock lock(mu_);
    const auto found = keys_.find(watched->key);
    if (found == keys_.end() || found->second.watched != watched) return false;
    keys_.erase(found);
    return true;
  }

  DiedCallback died_;
  Mutex mu_;
  absl::flat_hash_map<uint64_t, Place> keys_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<WatchThread>> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::Status HoldLifeline(uint8_t* page) {
  auto* mutex = reinterpret_cast<pthread_mutex_t*>(page);
  if (Word(*reinterpret_cast<uint32_t*>(page)).load() != 0) {
    return absl::FailedPreconditionError("life-line: the page's mutex is held, or was");
  }
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  int error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  if (error == 0) error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (error == 0) error = pthread_mutex_lock(mutex);
  return error == 0 ? absl::OkStatus() : ErrnoStatus("hold the life-line", error);
}

void AbandonLifeline(uint8_t* page, int signal) {
  Word(*reinterpret_cast<uint32_t*>(page + kAbandonedOffset)).store(static_cast<uint32_t>(signal));
  auto* word = reinterpret_cast<uint32_t*>(page);
  Word(*word).fetch_or(FUTEX_OWNER_DIED);
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

int AbandonedBy(const uint8_t* page) {
  // Read only; atomic_ref of C++20 takes no const.
  auto* word = reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(page) + kAbandonedOffset);
  const uint32_t signal = Word(*word).load();
  return signal < NSIG ? static_cast<int>(signal) : 0;
}

absl::StatusOr<std::unique_ptr<LifelineWatcher>> LifelineWatcher::Create(DiedCallback died) {
  // A word without its value, so that a kernel that knows the call answers EAGAIN.
  const uint32_t word = 0;
  std::vector<futex_waitv> probe = {WaitEntry(&word, 1, FUTEX_PRIVATE_FLAG)};
  if (const int error = FutexWaitv(&probe); error != EAGAIN) return ErrnoStatus("futex_waitv", error);
  return std::make_unique<FutexLifelineWatcher>(std::move(died));
}

}  // namespace monarch
