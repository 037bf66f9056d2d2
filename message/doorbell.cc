#include "message/doorbell.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr size_t kHeaderAt = 4096;
constexpr size_t kSlotsAt = 5 * 4096;
constexpr uint32_t kBitsPerNewsWord = 64;

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  // No FUTEX_PRIVATE_FLAG: waker and sleeper are different processes.
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  doorbell_counts().futex_wakes.fetch_add(1, std::memory_order_relaxed);
  Futex(word, FUTEX_WAKE, 1, nullptr);
}

// Never "no timeout": the kernel would restart such a wait after a signal whose handler was installed with
// SA_RESTART, and the caller would not see the signal.
timespec RelativeTimeout(absl::Duration timeout) {
  return absl::ToTimespec(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24) * 3650));
}

// Without a system call each time. Of a forked child it is its parent's, which nobody asks for.
int32_t ThisThread() {
  thread_local const int32_t tid = gettid();
  return tid;
}

// Writing to anything but an eventfd could block its writer for ever.
absl::Status CheckIsEventfd(int fd) {
  char target[64];
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  if (length < 0) return ErrnoStatus(absl::StrCat("read link ", path), errno);
  if (std::string_view(target, static_cast<size_t>(length)) != "anon_inode:[eventfd]") {
    return absl::FailedPreconditionError("received bell is no eventfd");
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return ErrnoStatus("set bell to non-blocking", errno);
  return absl::OkStatus();
}

}  // namespace

DoorbellCounts& doorbell_counts() {
  static DoorbellCounts counts;
  return counts;
}

absl::StatusOr<Doorbell> Doorbell::Create() {
  Doorbell doorbell;
  MONARCH_ASSIGN_OR_RETURN(doorbell.memfd_, CreateSealedMemfd("monarch-doorbell", kDoorbellBytes));
  MONARCH_ASSIGN_OR_RETURN(doorbell.mapping_, Mapping::Map(doorbell.memfd_.get(), kDoorbellBytes));
  doorbell.bell_ = ScopedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell.bell_.valid()) return ErrnoStatus("create bell", errno);
  return doorbell;
}

absl::StatusOr<Doorbell> Doorbell::Attach(ScopedFd memfd, ScopedFd bell) {
  MONARCH_RETURN_IF_ERROR(CheckIsEventfd(bell.get()));
  MONARCH_ASSIGN_OR_RETURN(Doorbell doorbell, AttachPages(std::move(memfd)));
  doorbell.bell_ = std::move(bell);
  return doorbell;
}

absl::StatusOr<Doorbell> Doorbell::AttachPages(ScopedFd memfd) {
  MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(memfd.get(), kDoorbellBytes, kDoorbellBytes).status());
  Doorbell doorbell;
  MONARCH_ASSIGN_OR_RETURN(doorbell.mapping_, Mapping::Map(memfd.get(), kDoorbellBytes));
  doorbell.memfd_ = std::move(memfd);
  return doorbell;
}

Doorbell::Header* Doorbell::header() const {
  static_assert(offsetof(Header, news) == 64 && offsetof(Header, words) == 128);
  static_assert(offsetof(Header, actors) == 128 + 4 * kWaitWords);
  static_assert(offsetof(Header, callers) == 128 + 12 * kWaitWords);
  static_assert(offsetof(Header, shown) == 128 + 12 * kWaitWords + 4 * kRingBits);
  static_assert(kHeaderAt + sizeof(Header) <= kSlotsAt);
  return reinterpret_cast<Header*>(mapping_.data() + kHeaderAt);
}

Doorbell::Slot* Doorbell::slots() const {
  static_assert(sizeof(Slot) == 64 && kSlotsAt + kWaitWords * sizeof(Slot) == kDoorbellBytes);
  return reinterpret_cast<Slot*>(mapping_.data() + kSlotsAt);
}

// No wake-up is lost because all of it is sequentially consistent: the ringer publishes, then looks at the
// word and at bell_waiters; the sleeper changes those, then looks for what was published. One of the two sees
// the other.
void Doorbell::SetNews(uint32_t bit) {
  if (bit < kRingBits)
    header()->news[bit / kBitsPerNewsWord].fetch_or(uint64_t{1} << (bit % kBitsPerNewsWord));
}

void Doorbell::RingWord(uint32_t word, bool force_bell) {
  const bool for_service = word == kServiceWord || word >= kWaitWords;
  if (!for_service) Wake(word);
  if (for_service || force_bell || header()->bell_waiters.load() != 0) RingBell();
}

void Doorbell::Wake(uint32_t word) {
  if (word == kServiceWord || word >= kWaitWords) {
    RingBell();
    return;
  }
  std::atomic<uint32_t>& state = header()->words[word];
  if (state.exchange(kRun) == kFutex) FutexWake(&state);
}

void Doorbell::RingBell() {
  doorbell_counts().bell_writes.fetch_add(1, std::memory_order_relaxed);
  // EAGAIN: the counter is at its maximum, so the bell is ringing as it is.
  (void)eventfd_write(bell_.get(), 1);
}

uint32_t Doorbell::WordOf(uint64_t actor, uint32_t hint) const {
  if (actor == 0) return kServiceWord;
  const auto& actors = header()->actors;
  if (hint != kServiceWord && hint < kWaitWords && actors[hint].load(std::memory_order_acquire) == actor)
    return hint;
  if (header()->actor_count.load() != 0) {
    for (uint32_t word = kServiceWord + 1; word < kWaitWords; ++word) {
      if (actors[word].load(std::memory_order_acquire) == actor) return word;
    }
  }
  return header()->default_word.load();
}

void Doorbell::RegisterActor(uint32_t word, uint64_t actor) {
  MONARCH_CHECK(word != kServiceWord && word < kWaitWords);
  static_cast<void>(SetActivity(word, 0, "", 0));
  if (actor != 0) slots()[word].tid.store(ThisThread(), std::memory_order_relaxed);
  const uint64_t before = header()->actors[word].exchange(actor);
  if (before == 0 && actor != 0) header()->actor_count.fetch_add(1);
  if (before != 0 && actor == 0) header()->actor_count.fetch_sub(1);
}

// A sequence lock with one writer. Release and acquire on each field, for fences are unknown to the thread
// sanitizer; on x86 they cost nothing. For the same reason the look at `watched` is not ordered behind the
// stores: who watches looks again after a while.
bool Doorbell::SetActivity(uint32_t word, uint64_t actor, std::string_view method, int64_t began_ns) {
  MONARCH_CHECK(word != kServiceWord && word < kWaitWords);
  Slot& slot = slots()[word];
  // An idle thread that has shown nothing leaves the slot's page alone: it may not exist yet.
  if (began_ns == 0 && !HasBit(header()->shown, word)) return false;
  if (began_ns == 0) {
    slot.began_ns.store(0, std::memory_order_release);
  } else {
    if (!HasBit(header()->shown, word)) SetBit(header()->shown, word);
    uint64_t text[kActivityTextMax / 8] = {};
    std::memcpy(text, method.data(), std::min(method.size(), sizeof(text)));
    const uint32_t turn = slot.turn.load(std::memory_order_relaxed) | 1;
    slot.turn.store(turn, std::memory_order_relaxed);
    slot.began_ns.store(began_ns, std::memory_order_release);
    slot.tid.store(ThisThread(), std::memory_order_release);
    slot.actor.store(actor, std::memory_order_release);
    for (size_t i = 0; i < std::size(text); ++i) slot.text[i].store(text[i], std::memory_order_release);
    slot.turn.store(turn + 1, std::memory_order_release);
  }
  if (!HasBit(header()->watched, word)) return false;
  const uint64_t bit = uint64_t{1} << (word % 64);
  return (header()->watched[word / 64].fetch_and(~bit) & bit) != 0;
}

std::optional<Activity> Doorbell::ReadSlot(uint32_t word) const {
  constexpr int kTries = 100;  // of one that is written all the time
  const Slot& slot = slots()[word];
  for (int i = 0; i < kTries; ++i) {
    const uint32_t turn = slot.turn.load(std::memory_order_acquire);
    Activity found;
    found.word = word;
    found.tid = slot.tid.load(std::memory_order_acquire);
    found.actor = slot.actor.load(std::memory_order_acquire);
    uint64_t text[kActivityTextMax / 8];
    for (size_t at = 0; at < std::size(text); ++at) text[at] = slot.text[at].load(std::memory_order_acquire);
    found.began_ns = slot.began_ns.load(std::memory_order_acquire);
    if (turn % 2 != 0 || slot.turn.load(std::memory_order_acquire) != turn) continue;
    const auto* bytes = reinterpret_cast<const char*>(text);
    found.method.assign(bytes, strnlen(bytes, sizeof(text)));
    return found;
  }
  return std::nullopt;
}

std::vector<Activity> Doorbell::Activities() const {
  std::vector<Activity> out;
  for (uint32_t word = kServiceWord + 1; word < kWaitWords; ++word) {
    // Slots of words without either are not touched: their pages do not exist yet.
    const uint64_t bound = header()->actors[word].load(std::memory_order_acquire);
    if (bound == 0 && !HasBit(header()->shown, word)) continue;
    std::optional<Activity> activity = ReadSlot(word);
    if (!activity.has_value() || header()->actors[word].load() != bound) continue;
    if (activity->began_ns == 0) {
      if (bound == 0) continue;
      activity->actor = bound;
      activity->method.clear();
    }
    if (activity->actor == 0 || (bound != 0 && activity->actor != bound)) continue;
    out.push_back(*std::move(activity));
  }
  return out;
}

void Doorbell::SetDefaultWord(uint32_t word) {
  MONARCH_CHECK(word < kWaitWords);
  header()->default_word.store(word);
}

void Doorbell::TellPeerDead(uint32_t bit) {
  if (bit >= kRingBits) return;
  header()->peer_dead[bit / kBitsPerNewsWord].fetch_or(uint64_t{1} << (bit % kBitsPerNewsWord));
  SetNews(bit);
  if (WakeSleeper(header()->callers[bit].load())) return;
  for (uint32_t word = kServiceWord + 1; word < kWaitWords; ++word) {
    if (WakeSleeper(word)) return;
  }
}

bool Doorbell::WakeSleeper(uint32_t word) {
  if (word == kServiceWord || word >= kWaitWords) return false;
  std::atomic<uint32_t>& state = header()->words[word];
  // A look first: most words are never slept on, and their lines are left alone.
  if (state.load() != kFutex || state.exchange(kRun) != kFutex) return false;
  FutexWake(&state);
  return true;
}

bool Doorbell::TakeBits(std::atomic<uint64_t>* bits, uint64_t* out) {
  bool any = false;
  for (uint32_t i = 0; i < kRingBits / kBitsPerNewsWord; ++i) {
    // A look first, so that the common "none" takes the cache line from nobody.
    out[i] = bits[i].load() == 0 ? 0 : bits[i].exchange(0);
    any = any || out[i] != 0;
  }
  return any;
}

bool Doorbell::TakeNews(uint64_t out[kRingBits / 64]) { return TakeBits(header()->news, out); }

bool Doorbell::TakePeerDead(uint64_t out[kRingBits / 64]) { return TakeBits(header()->peer_dead, out); }

bool Doorbell::HasNews() const {
  return std::any_of(std::begin(header()->news), std::end(header()->news),
                     [](const std::atomic<uint64_t>& news) { return news.load() != 0; });
}

void Doorbell::PrepareWait(uint32_t word) {
  MONARCH_CHECK(word != kServiceWord && word < kWaitWords);
  header()->words[word].exchange(kFutex);
}

void Doorbell::CancelWait(uint32_t word) {
  MONARCH_CHECK(word != kServiceWord && word < kWaitWords);
  header()->words[word].exchange(kRun);
}

absl::Status Doorbell::CommitWait(uint32_t word, absl::Duration timeout) {
  MONARCH_CHECK(word != kServiceWord && word < kWaitWords);
  std::atomic<uint32_t>& state = header()->words[word];
  if (state.load() != kFutex) return absl::OkStatus();
  const timespec relative = RelativeTimeout(timeout);
  doorbell_counts().futex_waits.fetch_add(1, std::memory_order_relaxed);
  const int error = Futex(&state, FUTEX_WAIT, kFutex, &relative) == 0 ? 0 : errno;
  // Awake by whatever reason: nobody needs to wake us now.
  const bool rung = state.exchange(kRun) != kFutex;
  switch (error) {
    case 0:
    case EAGAIN:
      return absl::OkStatus();
    case EINTR:
      return absl::CancelledError("wait: interrupted by a signal");
    case ETIMEDOUT:
      return rung ? absl::OkStatus() : absl::DeadlineExceededError("wait: not rung in time");
    default:
      return ErrnoStatus("futex wait", error);
  }
}

void Doorbell::ClearBell() {
  eventfd_t value;
  (void)eventfd_read(bell_.get(), &value);
}

}  // namespace monarch
