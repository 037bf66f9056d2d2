#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/cpp/runtime/actor_table.h"
#include "client/cpp/runtime/daemon_link.h"
#include "client/cpp/runtime/inbox.h"
#include "message/death_board.h"
#include "message/doorbell.h"
#include "message/frame.h"
#include "message/ring_link.h"
#include "message/segment.h"

namespace monarch {

// Another process of the session, as a receiver: the path to it, what waits for room there, whom it paused.
// Frames get their sequence numbers when they leave, so one that is given up leaves no gap.
// Threading: thread-safe (mu_). `key` and `address` are constant.
class Peer {
 public:
  enum class Outcome {
    kSent,     // gone, or queued before the introduction
    kBlocked,  // no room, or paused; `word` is woken when it is worth another try
    kGone,     // the peer is dead or its link broken
  };
  struct Shared {  // what all peers of a runtime use
    DaemonLink* daemon = nullptr;
    Doorbell* doorbell = nullptr;  // this process's
    Waker* waker = nullptr;
    std::atomic<uint64_t>* frames_sent = nullptr;
    std::atomic<size_t>* blocked = nullptr;  // peers with something queued or somebody waiting
    const ActorTable* actors = nullptr;      // of this process
    SessionId session;
    ProcAddress self;
  };
  // How the daemon introduced us.
  struct Introduction {
    std::shared_ptr<RingLink> ring;  // null: relay
    uint32_t local_bit = 0;          // the ring's
    std::shared_ptr<Doorbell> doorbell;
    std::shared_ptr<PeerSegment> segment;
    FailureEvent who;                             // what an event about it says, but for the cause
    std::shared_ptr<const DeathBoardView> board;  // of its launcher; null: only the daemon tells its death
  };

  Peer(const ProcAddress& address, uint64_t key, const Shared& shared)
      : address(address), key(key), shared_(shared) {}

  const ProcAddress address;
  const uint64_t key;  // its name in the segment's books

  Outcome Offer(const FrameHeader& header, absl::Span<const uint8_t> payload, uint32_t word);
  void ForgetWaiter(uint32_t word);
  // The runtime's own frames: never waits. False: gone, or the peer lets more pile up than is reasonable.
  bool Enqueue(const FrameHeader& header, std::string payload);
  // There may be room now.
  void Flush();

  void Introduced(Introduction introduction);
  bool introduced() const;
  std::shared_ptr<RingLink> ring() const;
  std::shared_ptr<PeerSegment> segment() const;
  // How it ended, if its launcher says that it has.
  std::optional<FailureEvent> EndOnBoard() const;
  void SetPaused(uint64_t actor, bool paused);
  // An actor, of this process or of the peer, is gone: its pairs' numbers end.
  void EndNumbersFrom(uint64_t actor);
  void EndNumbersTo(uint64_t actor);
  size_t pairs() const;
  // The daemon, which relays to it, has much waiting for it: calls and port messages are held back until it
  // has not.
  void SetRelayPaused(bool paused);
  // Dead, or its link is broken: what is queued is dropped, who waits is told. False: it was gone already.
  bool Gone(const FailureEvent& event);
  // Why it is gone; none if it is not.
  FailureEvent gone_event() const;

 private:
  enum class State { kConnecting, kOpen, kGone };
  struct Queued {
    FrameHeader header;
    std::string payload;
  };

  Outcome Push(const FrameHeader& header, absl::Span<const uint8_t> payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  using Pair = std::pair<uint64_t, uint64_t>;  // sender, receiver
  void EndNumbers(absl::FunctionRef<bool(const Pair&)> is_over);
  // False: there is something left.
  bool FlushQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t WordFor(const FrameHeader& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks for a signal when there is room. False: there is some now.
  bool AskForRoom(uint32_t word) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddWaiter(uint32_t word) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountBlocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Append(const FrameHeader& header, std::string payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Shared shared_;

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kConnecting;
  Introduction path_ ABSL_GUARDED_BY(mu_);
  FailureEvent gone_ ABSL_GUARDED_BY(mu_);
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mu_);
  size_t queue_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint32_t> waiters_ ABSL_GUARDED_BY(mu_);
  bool counted_ ABSL_GUARDED_BY(mu_) = false;  // in shared_.blocked
  absl::flat_hash_set<uint64_t> paused_ ABSL_GUARDED_BY(mu_);
  // By how many daemons' queues on the way: each resumes what it has paused.
  int relay_pauses_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<Pair, uint64_t> sequences_ ABSL_GUARDED_BY(mu_);  // the last of each pair
  // No number of a pair that was forgotten is above it: one that begins anew goes on from here.
  uint64_t forgotten_max_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, uint32_t> word_hints_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
