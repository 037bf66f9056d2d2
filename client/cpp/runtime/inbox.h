#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"
#include "message/frame.h"
#include "message/payload.h"

namespace monarch {

// Bytes of a received payload: an own copy, or a block in the sender's segment that goes back when this is
// destroyed. Threading: destroy from any thread; the bytes are the holder's to read, and to write unless
// `shared`.
class PayloadBytes {
 public:
  virtual ~PayloadBytes() = default;
  virtual absl::Span<uint8_t> bytes() = 0;
  virtual bool shared() const { return false; }  // read only: other receivers see the same bytes
};

// A message as handed to an actor, a call or a port.
struct Message {
  FrameHeader header;
  std::shared_ptr<PayloadBytes> payload;  // null: none
  // Meta and parts; spans into `payload`. Parsed at delivery: hostile payloads never get here.
  PayloadView view;
  // Of a call: its deadline has passed. Who finds that before the call begins drops it.
  bool IsLate() const;
  // Of a call: its kCancel was taken from the mailbox. For who takes messages ahead of their turn; set and
  // read on one thread.
  bool cancelled = false;
  int64_t began_ns = 0;  // of a call: since when the layer says it runs
};

// Wakes the thread that sleeps on a wait word of this process.
// Threading: thread-safe.
class Waker {
 public:
  virtual ~Waker() = default;
  virtual void Wake(uint32_t word) = 0;
};

// Tells an event loop that inboxes have news: a list of cookies, and a way to wake the loop's thread.
// Threading: thread-safe.
class Notifier {
 public:
  explicit Notifier(std::weak_ptr<Waker> waker = {}) : waker_(std::move(waker)) {}
  // Adds the cookie (once, until taken) and wakes: the wait word if the owner sleeps there
  // (Runtime::WaitNotifier), the eventfd if one was asked for.
  void Notify(uint64_t cookie);
  // Wakes without a cookie; news until the next Take.
  void Poke();
  std::vector<uint64_t> Take();
  bool has_news() const;
  // For a foreign loop's add_reader, level-triggered; Take() clears it. Made on first need.
  absl::StatusOr<int> EventFd();
  // Which word Notify rings; set by the thread that sleeps there.
  void SetWord(uint32_t word);

 private:
  void RaiseEventFd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::weak_ptr<Waker> waker_;
  mutable Mutex mu_;
  std::vector<uint64_t> ready_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint64_t> listed_ ABSL_GUARDED_BY(mu_);  // what is in ready_
  bool poked_ ABSL_GUARDED_BY(mu_) = false;
  ScopedFd eventfd_ ABSL_GUARDED_BY(mu_);
  uint32_t word_ ABSL_GUARDED_BY(mu_) = 0;
};

// A queue of messages for one receiver: an actor's mailbox, the answers of a call, a port.
// Threading: thread-safe. Filled by whichever thread drains; one consumer at a time.
class Inbox {
 public:
  // What a message takes beside its payload: itself, its node in the queue, its payload's own allocation.
  // Without it a million empty messages would count as nothing.
  static constexpr uint64_t kMessageBytes = 384;

  // Calls whose deadline has passed are dropped. A kCancel is for a call that was taken before.
  std::optional<Message> TryPop();
  // Whether nobody waits any more for the answer to this call, which was taken from here and is not answered.
  // From any thread.
  bool IsCancelled(const Message& call) const;
  // Takes a queued call out of its turn: that of the process `caller` with the number `call` there. Nothing
  // if it is not queued (any more), or behind very many others. From any thread.
  std::optional<Message> Remove(const ProcAddress& caller, uint64_t call);
  // The meta of such a call.
  std::optional<std::string> MetaOfQueued(const ProcAddress& caller, uint64_t call) const;
  // A call's: whoever waits wants the next answer, whosesoever, and not all of them.
  void SetAnyAnswerEndsWait();
  bool any_answer_ends_wait() const;
  // A mailbox's: others than its actor's thread may answer the calls that were taken from it.
  void SetOthersAnswer();
  bool others_answer() const;
  bool empty() const;
  size_t size() const;
  // True when nothing more will come: all expected answers were popped, or the port or actor was closed.
  bool finished() const;
  // Whether there is no use in waiting: not empty, or finished.
  bool ready() const;
  // From now on each push (and the closing) notifies. A null notifier ends it. Notifies at once if not empty.
  void SetNotifier(std::shared_ptr<Notifier> notifier, uint64_t cookie);

  uint64_t id() const { return id_; }  // port id; 0 for a mailbox

 private:
  friend class ActorTable;
  friend class CallTable;
  friend class RuntimeImpl;

  struct Bounds {
    uint64_t bytes_max = UINT64_MAX;
    uint64_t messages_max = UINT64_MAX;
  };
  // Procs that were told to pause, and threads of this process that wait for room, once half of it is free.
  using Resume = std::function<void(std::vector<ProcAddress> procs, std::vector<uint32_t> words)>;
  // What a push asks of its caller.
  struct Pushed {
    bool accepted = false;
    bool pause = false;  // the sender's proc has to be told to pause
  };

  Inbox(uint64_t id, std::weak_ptr<Waker> waker, Bounds bounds, Resume resume)
      : id_(id), waker_(std::move(waker)), bounds_(bounds), resume_(std::move(resume)) {}

  // Whom to tell that there is room again.
  struct Room {
    std::vector<ProcAddress> procs;
    std::vector<uint32_t> words;
  };

  // Not accepted: closed, or nothing (more) is expected.
  Pushed Push(Message message);
  // Leaves `message` alone and remembers `word` if the inbox is over its bounds.
  bool PushIfRoom(Message& message, uint32_t word, bool* closed);
  bool IsPaused(const ProcAddress& proc) const;
  // Drops the call that the kCancel is for; keeps `cancel` before all else if that is not queued.
  void Cancel(Message cancel);
  // From now on calls are not accepted, and all else is. Returns those that were queued.
  std::list<Message> RefuseCalls();
  // Nothing more comes. Returns what was queued.
  std::list<Message> Close();
  void Wakes(uint32_t word);
  bool Refuses(const Message& message) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Finished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Append(Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Message Take(std::list<Message>::const_iterator at, Room* room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::list<Message>::const_iterator Find(const ProcAddress& caller, uint64_t call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellRoom(Room room);
  void Tell();

  const uint64_t id_;
  const std::weak_ptr<Waker> waker_;
  const Bounds bounds_;
  const Resume resume_;
  std::atomic<bool> given_up_{false};  // calls: no answer is waited for any more

  mutable Mutex mu_;
  std::list<Message> queue_ ABSL_GUARDED_BY(mu_);  // a deque allocates for nothing, at each call
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t word_ ABSL_GUARDED_BY(mu_) = 0;        // rung on push
  uint32_t rung_word_ ABSL_GUARDED_BY(mu_) = 0;   // which one other processes ring for it; 0: the bell
  uint64_t owner_ ABSL_GUARDED_BY(mu_) = 0;       // ports: the actor they belong to
  uint64_t expected_ ABSL_GUARDED_BY(mu_) = 0;    // calls: answers still to come
  int64_t deadline_ns_ ABSL_GUARDED_BY(mu_) = 0;  // calls: CLOCK_MONOTONIC; 0: none
  size_t cancels_ ABSL_GUARDED_BY(mu_) = 0;       // in the queue
  bool unbounded_ ABSL_GUARDED_BY(mu_) = false;   // a port or a mailbox: until closed
  bool any_answer_ends_wait_ ABSL_GUARDED_BY(mu_) = false;
  bool others_answer_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool refuses_calls_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // over its bounds, and not yet half empty again
  // Procs told to pause, and how many messages came from each since.
  absl::flat_hash_map<ProcAddress, uint32_t> paused_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> room_words_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Notifier> notifier_ ABSL_GUARDED_BY(mu_);
  uint64_t cookie_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace monarch
