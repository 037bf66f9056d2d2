#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/scoped_fd.h"
#include "message/memfd.h"

namespace monarch {

inline constexpr uint32_t kWaitWords = 1024;
inline constexpr uint32_t kServiceWord = 0;  // nobody sleeps on it: ringing it means the process bell
inline constexpr uint32_t kRingBits = 256;
inline constexpr size_t kDoorbellBytes = 21 * 4096;

// State of a wait word. Whoever publishes something does `exchange(kRun)` and, if the old state was kFutex,
// one futex wake.
enum WaitState : uint32_t { kRun = 0, kFutex = 1 };

// What an actor is at work on, as shown on the word of its thread. Plain data.
struct Activity {
  uint64_t actor = 0;
  uint32_t word = 0;
  int32_t tid = 0;       // of the thread
  int64_t began_ns = 0;  // CLOCK_MONOTONIC, some milliseconds exact; 0: idle
  std::string method;    // its first kActivityTextMax bytes
};
inline constexpr size_t kActivityTextMax = 40;

// The shared pages of one process, as laid out in WIRE.md ("Doorbell"): life-line page, bell_waiters, news
// bits, wait words, activities. Written by the owner and by its session's processes; all content but the
// owner's own state is hostile. Threading: thread-safe (atomics).
class Doorbell {
 public:
  // Creates the pages and the process bell (an eventfd).
  static absl::StatusOr<Doorbell> Create();
  // Another process's, from received fds; the memfd is checked first.
  static absl::StatusOr<Doorbell> Attach(ScopedFd memfd, ScopedFd bell);
  // Without the bell: a launcher's, which must not write to what a process could make it block on.
  static absl::StatusOr<Doorbell> AttachPages(ScopedFd memfd);

  int memfd() const { return memfd_.get(); }
  int bell() const { return bell_.get(); }

  // --- for the sender (on the peer's doorbell) ---
  // Marks ring `bit` as holding news, then wakes `word`. Rings the bell too if `word` is kServiceWord,
  // `force_bell`, or somebody in that process waits in an event loop of its own (bell_waiters). At most one
  // futex wake and one eventfd write. A word out of range counts as kServiceWord.
  void Ring(uint32_t bit, uint32_t word, bool force_bell) {
    SetNews(bit);
    RingWord(word, force_bell);
  }
  // The two halves, for a word that is looked up: between them. One that was read before the news is set may
  // be that of a thread which has stopped sleeping for the receiver, and its successor saw no news.
  void SetNews(uint32_t bit);
  void RingWord(uint32_t word, bool force_bell);
  // Wakes `word` only (kServiceWord or out of range: the bell); for what was delivered by other means.
  void Wake(uint32_t word);
  void RingBell();
  // The word on which `actor` sleeps, as its process registered it; the default word if it has none of its
  // own. `hint` (a former answer, or 0) is tried first, then all words are searched.
  uint32_t WordOf(uint64_t actor, uint32_t hint) const;

  // --- for the launcher ---
  // Says that who is behind ring `bit` may be dead, and wakes one thread that sleeps on a word, which drains
  // for all: the last to call there if it sleeps, else any. Nobody sleeps: the daemon's notice comes to the
  // service thread. Never blocks.
  void TellPeerDead(uint32_t bit);

  // --- for the owner ---
  // The thread of `word` waits for an answer through ring `bit`.
  void NoteCaller(uint32_t bit, uint32_t word) {
    if (bit < kRingBits) header()->callers[bit].store(word, std::memory_order_relaxed);
  }
  // Says that `actor` (not 0), whose thread calls, sleeps on `word`, and is idle; actor 0 takes it back.
  void RegisterActor(uint32_t word, uint64_t actor);
  // Says that the thread of `word` now sleeps for all actors without a word of their own (a pool's leader).
  // At first it is kServiceWord. To be called before PrepareWait: a sender that still reads the former word
  // has published before, so the new thread's look at the news sees it.
  void SetDefaultWord(uint32_t word);
  // Takes all news bits: bit i of out[i / 64]. True if any was set.
  bool TakeNews(uint64_t out[kRingBits / 64]);
  bool HasNews() const;
  // Takes all bits that TellPeerDead has set; it sets the news bit afterwards. Anybody can set them: a hint.
  bool TakePeerDead(uint64_t out[kRingBits / 64]);
  // Sleeping protocol: PrepareWait; look again for work; CommitWait (or CancelWait). CommitWait returns when
  // rung, on EINTR (Cancelled), or after `timeout` (DeadlineExceeded), and for no reason at times (OK); the
  // word says RUN then.
  void PrepareWait(uint32_t word);
  void CancelWait(uint32_t word);
  absl::Status CommitWait(uint32_t word, absl::Duration timeout);
  void AddBellWaiter() { header()->bell_waiters.fetch_add(1); }
  void RemoveBellWaiter() { header()->bell_waiters.fetch_sub(1); }
  // Drains the bell's counter after epoll said it is readable.
  void ClearBell();

  // The thread of `word`, which calls, runs `actor`, which is in `method` since then; 0: it is idle. No
  // system call. True: WatchHandler asked to be told of what it was in before.
  bool SetActivity(uint32_t word, uint64_t actor, std::string_view method, int64_t began_ns);

  // Somebody asks for the interpreter since then; 0: he got it.
  void SetInterpreterAsked(int64_t since_ns) { header()->interpreter_asked_ns.store(since_ns); }

  // --- for the daemon ---
  int64_t interpreter_asked_ns() const { return header()->interpreter_asked_ns.load(); }
  // The actors that have words of their own, and those at work on a thread of a pool. One that begins
  // something else meanwhile may be left out.
  std::vector<Activity> Activities() const;
  // The next SetActivity of the word's thread says so, once. One at the same moment may not.
  void WatchHandler(uint32_t word) {
    if (word < kWaitWords) SetBit(header()->watched, word);
  }

  // The life-line's page, at offset 0 of the memfd.
  uint8_t* lifeline_page() const { return mapping_.data(); }

 private:
  struct Header {
    std::atomic<uint32_t> bell_waiters;
    std::atomic<uint32_t> default_word;
    std::atomic<uint32_t> actor_count;  // of `actors` that are not 0
    uint32_t reserved;
    std::atomic<int64_t> interpreter_asked_ns;
    uint32_t reserved_too[10];
    std::atomic<uint64_t> news[kRingBits / 64];
    std::atomic<uint64_t> peer_dead[kRingBits / 64];
    std::atomic<uint32_t> words[kWaitWords];
    std::atomic<uint64_t> actors[kWaitWords];  // actors[i] sleeps on words[i]
    std::atomic<uint32_t> callers[kRingBits];
    std::atomic<uint64_t> shown[kWaitWords / 64];    // words that have shown an activity
    std::atomic<uint64_t> watched[kWaitWords / 64];  // words whose next change is waited for
  };
  // One cache line. `turn` is odd while the rest changes.
  struct Slot {
    std::atomic<uint32_t> turn;
    std::atomic<int32_t> tid;
    std::atomic<int64_t> began_ns;
    std::atomic<uint64_t> actor;
    std::atomic<uint64_t> text[kActivityTextMax / 8];  // padded with 0
  };
  bool WakeSleeper(uint32_t word);
  static void SetBit(std::atomic<uint64_t>* bits, uint32_t bit) {
    bits[bit / 64].fetch_or(uint64_t{1} << (bit % 64));
  }
  static bool HasBit(const std::atomic<uint64_t>* bits, uint32_t bit) {
    return (bits[bit / 64].load(std::memory_order_relaxed) >> (bit % 64) & 1) != 0;
  }
  static bool TakeBits(std::atomic<uint64_t>* bits, uint64_t* out);
  Header* header() const;  // behind the life-line's page
  Slot* slots() const;     // one for each word
  std::optional<Activity> ReadSlot(uint32_t word) const;

  ScopedFd memfd_;
  ScopedFd bell_;
  Mapping mapping_;
};

// Counts of this process, for tests of a call's cost: system calls made by Ring/Wake/CommitWait.
struct DoorbellCounts {
  std::atomic<uint64_t> futex_wakes{0};
  std::atomic<uint64_t> futex_waits{0};
  std::atomic<uint64_t> bell_writes{0};
};
DoorbellCounts& doorbell_counts();

}  // namespace monarch
