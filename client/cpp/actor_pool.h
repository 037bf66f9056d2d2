#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/cpp/actor_strand.h"
#include "client/cpp/runtime/runtime.h"

namespace monarch {

// Runs strands on a few threads, leader and followers: one thread sleeps until mailboxes have news; it makes
// another the leader before it runs an actor, and runs that actor itself. So a message costs one wake-up, and
// a handler that takes long keeps nobody else waiting while a thread is free. Threading: thread-safe.
class ActorPool {
 public:
  ActorPool(Runtime* runtime, const ActorTypes* types, size_t threads);
  ~ActorPool();  // StopAll, then joins

  void Add(RuntimeTask create);
  // Stops every actor behind what was sent to it before; the threads go on. False: some are still at work
  // when the time is over.
  bool StopActors(const std::string& reason, absl::Duration timeout);
  // Ends every actor once its current message is done, then the threads. Later Adds are refused by the
  // runtime's end.
  void StopAll(const std::string& reason);

 private:
  void ThreadMain();
  // Leads until there is something to run; null: the pool ends.
  std::shared_ptr<ActorStrand> NextReady();
  void Reap(const std::shared_ptr<ActorStrand>& strand);

  Runtime* const runtime_;
  const ActorTypes* const types_;
  const std::shared_ptr<Notifier> notifier_;

  Mutex mu_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ActorStrand>> strands_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<ActorStrand>> ready_ ABSL_GUARDED_BY(mu_);
  bool led_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar changed_;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace monarch
