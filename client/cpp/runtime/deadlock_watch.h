#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "client/cpp/runtime/actor_table.h"
#include "client/cpp/runtime/call_table.h"
#include "client/cpp/runtime/deadlock_finder.h"

namespace monarch {

// The long waits of this process's actors, and the search for cycles among them. Nothing here happens before
// a wait has lasted kPatience. Threading: Wait, Receive and SetEndpointNamer from any thread; the search runs
// on the loop's.
class DeadlockWatch : private DeadlockFinder::World {
 public:
  struct Process {
    ProcAddress self;
    size_t steps_max = 0;
    ActorTable* actors = nullptr;
    CallTable* calls = nullptr;
    std::shared_ptr<EventLoop> loop;
    std::function<void(const ProcAddress& to, const std::string& probe)> send;  // never waits
    std::function<void(const FrameHeader& call, const std::string& exception)> refuse;
    // Tells the callee that nobody waits for its answer any more.
    std::function<void(uint64_t call, uint64_t caller, const CallTarget& callee)> cancel;
  };
  explicit DeadlockWatch(Process process);

  // The thread of `actor` waits for answers to a call, without a limit. `sleep` is how, for a time; what it
  // returns is returned, but for DeadlineExceeded.
  absl::Status Wait(const Inbox& call, uint64_t actor, absl::FunctionRef<absl::Status(absl::Duration)> sleep);
  // A probe from another process.
  void Receive(const Message& message);
  // Says what the calling thread's actor is in, for reports; called when it waits for long.
  void SetEndpointNamer(std::function<std::string()> namer);

 private:
  struct LongWait {
    uint64_t number = 0;
    const Inbox* call = nullptr;
    std::string name, endpoint;
    absl::flat_hash_set<std::pair<ProcAddress, uint64_t>> visits;
  };

  uint64_t Begin(const Inbox& call, uint64_t actor, std::string name);
  void End(uint64_t actor, uint64_t number);

  std::optional<DeadlockFinder::Waiting> WaitOf(uint64_t actor) override;
  bool Visit(uint64_t actor, uint64_t wait, const ProcAddress& searcher, uint64_t search) override;
  std::optional<std::string> Queued(uint64_t actor, const ProcAddress& caller, uint64_t call) override;
  bool OthersAnswer(uint64_t actor) override;
  void Send(const ProcAddress& to, const Probe& probe) override;
  void Refuse(uint64_t actor, const ProcAddress& caller, uint64_t call,
              const std::vector<std::string>& cycle) override;
  void GiveUp(uint64_t call, const CallTarget& target, const std::vector<std::string>& cycle) override;

  const Process process_;
  DeadlockFinder finder_;  // the loop's thread
  Mutex mu_;
  std::function<std::string()> namer_ ABSL_GUARDED_BY(mu_);
  uint64_t last_wait_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, LongWait> waits_ ABSL_GUARDED_BY(mu_);  // by actor: one thread runs it
};

}  // namespace monarch
