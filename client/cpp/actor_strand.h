#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "client/cpp/runtime/runtime.h"
#include "monarch/actor.h"

namespace monarch {

// One C++ actor and its mailbox: runs messages one after the other on whichever thread calls Run.
// Threading: guarded by running_: Run on one thread at a time (a second one returns at once).
class ActorStrand {
 public:
  // `create` as in WIRE.md; the class is looked up in `types` when the first Run constructs the actor.
  ActorStrand(Runtime* runtime, const ActorTypes* types, RuntimeTask create);

  // Handles what is in the mailbox, at most `messages_max`. True: more may be there.
  bool Run(size_t messages_max);
  // Ends the actor in an orderly way, if it lives. Not while another thread is in Run.
  void Stop(const std::string& reason);
  bool ended() const;
  uint64_t actor_id() const { return id_; }

 private:
  void Construct();
  void Handle(Message message);
  void HandleCall(const Message& message);
  absl::Status SendResult(const Message& call, const Value& result);
  absl::Status TellError(const Message& call, absl::StatusCode code, const std::string& text);
  void HandleFailure(const Message& message);
  void Fail(FailureEvent event);
  void End(FailureEvent event, const FailureEvent* failure);

  Runtime* const runtime_;
  const ActorTypes* const types_;
  const uint64_t id_;
  const std::shared_ptr<Inbox> mailbox_;
  RuntimeTask create_;
  const ActorType* type_ = nullptr;
  std::unique_ptr<Actor> actor_;
  bool constructed_ = false;

  mutable Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool again_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

// The actor whose message this thread is handling; kRootActor outside of actors.
uint64_t CurrentActor();

}  // namespace monarch
