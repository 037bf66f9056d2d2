#include "client/cpp/runtime/wait_words.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/errno_status.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

std::atomic<uint64_t> next_id{1};
thread_local WaitWords::Batch* current_batch = nullptr;

class BellScope {
 public:
  explicit BellScope(Doorbell* doorbell) : doorbell_(doorbell) {
    if (doorbell_ != nullptr) doorbell_->AddBellWaiter();
  }
  ~BellScope() {
    if (doorbell_ != nullptr) doorbell_->RemoveBellWaiter();
  }
  BellScope(const BellScope&) = delete;
  BellScope& operator=(const BellScope&) = delete;

 private:
  Doorbell* const doorbell_;
};

absl::Status Poll(pollfd* fds, nfds_t count, absl::Duration left) {
  timespec wait = {};
  const bool bounded = left != absl::InfiniteDuration();
  if (bounded) wait = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
  const int ready = ppoll(fds, count, bounded ? &wait : nullptr, nullptr);
  if (ready > 0) return absl::OkStatus();
  if (ready == 0) return absl::DeadlineExceededError("wait: nothing in time");
  if (errno == EINTR) return absl::CancelledError("wait: interrupted by a signal");
  return ErrnoStatus("ppoll", errno);
}

}  // namespace

// The words of one thread, one for each WaitWords it met; given back when the thread ends.
struct ThreadWords {
  struct Entry {
    uint64_t id;
    uint32_t word;
    std::weak_ptr<WaitWords> owner;
  };
  ~ThreadWords() {
    for (Entry& entry : entries) {
      if (auto owner = entry.owner.lock()) owner->Free(entry.word);
    }
  }
  std::vector<Entry> entries;
};

namespace {
thread_local ThreadWords thread_words;
}  // namespace

WaitWords::WaitWords(std::shared_ptr<Doorbell> doorbell, uint32_t words)
    : id_(next_id.fetch_add(1)), doorbell_(std::move(doorbell)) {
  MutexLock lock(mu_);
  for (uint32_t word = std::min(words, kWaitWords) - 1; word > kServiceWord; --word) free_.push_back(word);
}

uint32_t WaitWords::ThreadWord() {
  auto& entries = thread_words.entries;
  for (const ThreadWords::Entry& entry : entries) {
    if (entry.id == id_) return entry.word;
  }
  uint32_t word = kServiceWord;
  {
    MutexLock lock(mu_);
    if (free_.empty()) return kServiceWord;
    word = free_.back();
    free_.pop_back();
  }
  std::erase_if(entries, [](const ThreadWords::Entry& entry) { return entry.owner.expired(); });
  entries.push_back({id_, word, weak_from_this()});
  return word;
}

void WaitWords::Free(uint32_t word) {
  if (fork_.in_child()) return;
  doorbell_->RegisterActor(word, 0);
  doorbell_->CancelWait(word);
  MutexLock lock(mu_);
  free_.push_back(word);
  // Nobody sleeps there any more: back to the service thread, until the next of the pool says so.
  if (pool_word_ != word) return;
  pool_word_ = kServiceWord;
  doorbell_->SetDefaultWord(kServiceWord);
}

void WaitWords::BindPool() {
  const uint32_t word = ThreadWord();
  MutexLock lock(mu_);
  pool_word_ = word;
  doorbell_->SetDefaultWord(word);
}

void WaitWords::Wake(uint32_t word) {
  for (Batch* batch = current_batch; batch != nullptr; batch = batch->outer_) {
    if (batch->words_ != this) continue;
    if (std::find(batch->wakes_.begin(), batch->wakes_.end(), word) == batch->wakes_.end()) {
      batch->wakes_.push_back(word);
    }
    return;
  }
  WakeNow(word);
}

void WaitWords::WakeNow(uint32_t word) {
  if (word != kServiceWord) {
    doorbell_->Wake(word);
    return;
  }
  if (sleeper_count_.load() == 0) return;
  MutexLock lock(mu_);
  const uint64_t one = 1;
  for (const int fd : sleepers_) static_cast<void>(!write(fd, &one, sizeof(one)));
}

WaitWords::Batch::Batch(WaitWords* words, uint32_t own_word)
    : words_(words), outer_(std::exchange(current_batch, this)), own_word_(own_word) {}

WaitWords::Batch::~Batch() {
  current_batch = outer_;
  for (const uint32_t word : wakes_) {
    if (word != own_word_ || word == kServiceWord) words_->WakeNow(word);
  }
}

absl::Status WaitWords::SleepUntil(absl::FunctionRef<bool()> ready, absl::FunctionRef<void()> drain,
                                   bool bell, absl::Duration timeout) {
  if (ready()) return absl::OkStatus();
  const uint32_t word = ThreadWord();
  if (word == kServiceWord) return SleepOnFd(ready, drain, timeout);
  const absl::Duration deadline = clock_.Now() + timeout;
  BellScope scope(bell ? doorbell_.get() : nullptr);
  while (true) {
    // Twice, because the state word must not say that it sleeps while there is something to do: each message
    // would cost its sender a system call.
    drain();
    if (ready()) return absl::OkStatus();
    doorbell_->PrepareWait(word);
    drain();
    const bool done = ready();
    const absl::Duration left = deadline - clock_.Now();
    if (done || left <= absl::ZeroDuration()) {
      doorbell_->CancelWait(word);
      if (done) return absl::OkStatus();
      return absl::DeadlineExceededError("wait: nothing in time");
    }
    const absl::Status status = doorbell_->CommitWait(word, left);
    // A late look follows a timeout: what came at the same moment is not lost.
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  }
}

absl::Status WaitWords::SleepOnFd(absl::FunctionRef<bool()> ready, absl::FunctionRef<void()> drain,
                                  absl::Duration timeout) {
  const ScopedFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("eventfd", errno);
  {
    MutexLock lock(mu_);
    sleepers_.push_back(fd.get());
    sleeper_count_.fetch_add(1);
  }
  const absl::Duration deadline = clock_.Now() + timeout;
  absl::Status status;
  {
    BellScope scope(doorbell_.get());
    pollfd entry = {fd.get(), POLLIN, 0};
    while (true) {
      uint64_t count = 0;
      static_cast<void>(!read(fd.get(), &count, sizeof(count)));
      drain();
      if (ready()) break;
      status = Poll(&entry, 1, deadline - clock_.Now());
      if (!status.ok()) break;
    }
  }
  MutexLock lock(mu_);
  sleepers_.erase(std::find(sleepers_.begin(), sleepers_.end(), fd.get()));
  sleeper_count_.fetch_sub(1);
  return status;
}

absl::Status WaitWords::PollUntil(absl::FunctionRef<bool()> ready, absl::FunctionRef<void()> drain, int fd,
                                  int other_fd, absl::Duration timeout) {
  if (ready()) return absl::OkStatus();
  BellScope scope(doorbell_.get());
  drain();
  if (ready()) return absl::OkStatus();
  pollfd entries[2] = {{fd, POLLIN, 0}, {other_fd, POLLIN, 0}};
  return Poll(entries, 2, timeout);
}

}  // namespace monarch
