#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/cpp/runtime/inbox.h"
#include "client/cpp/runtime/runtime.h"

namespace monarch {

// The actors of this process, and how the last ones ended.
// Threading: thread-safe (mu_).
class ActorTable {
 public:
  struct Actor {
    std::shared_ptr<Inbox> mailbox;
    Runtime::ActorInfo description;
    uint32_t word = 0;  // on which its thread sleeps
    std::optional<FailureEvent> orphaned = {};
  };
  // Called with procs to be told, and words to be woken, when a mailbox has room again.
  using Resume =
      std::function<void(uint64_t actor, std::vector<ProcAddress> procs, std::vector<uint32_t> words)>;
  struct Bounds {
    uint64_t mailbox_bytes_max = 0;
    uint64_t mailbox_messages_max = 0;
    uint64_t actors_max = 0;
  };

  ActorTable(std::weak_ptr<Waker> waker, const Bounds& bounds, Resume resume)
      : waker_(std::move(waker)), bounds_(bounds), resume_(std::move(resume)) {}

  // AlreadyExists; ResourceExhausted (actors_per_proc_max).
  absl::StatusOr<std::shared_ptr<Inbox>> Add(uint64_t id, Runtime::ActorInfo description);
  std::shared_ptr<Inbox> Mailbox(uint64_t id) const;
  // Whether it exists; the agent and the root always do.
  bool IsLive(uint64_t id) const;
  std::optional<Actor> Find(uint64_t id) const;
  // Says that the actor's thread sleeps on `word`; returns the word it had.
  uint32_t Bind(uint64_t id, uint32_t word);
  uint32_t WordOf(uint64_t id) const;
  // Its description from now on; none if it has ended.
  std::optional<Runtime::ActorInfo> SetRestarts(uint64_t id, const MeshRestarts& restarts);
  // Takes the actor out and remembers how it ended.
  std::optional<Actor> End(uint64_t id, const FailureEvent& event);
  // It was not made, and why; for those who call it all the same. Nothing if there is such an actor.
  void Refuse(uint64_t id, const FailureEvent& event);
  // Its owner is gone: it still lives, and answers no call any more, with `event` as the reason.
  void Orphan(uint64_t id, const FailureEvent& event);
  // How an actor ended, or was orphaned; none if that is not known.
  std::optional<FailureEvent> EndOf(uint64_t id) const;
  std::vector<std::pair<uint64_t, Runtime::ActorInfo>> All() const;
  std::vector<uint64_t> OwnedFrom(const ProcAddress& proc) const;
  // Whether any actor of this process ended in another way than by a stop.
  bool AnyFailed() const;

 private:
  void Remember(uint64_t id, const FailureEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::weak_ptr<Waker> waker_;
  const Bounds bounds_;
  const Resume resume_;
  mutable Mutex mu_;
  absl::flat_hash_map<uint64_t, Actor> actors_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, FailureEvent> ended_ ABSL_GUARDED_BY(mu_);
  std::deque<uint64_t> ended_order_ ABSL_GUARDED_BY(mu_);
  bool any_failed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace monarch
