#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/cpp/runtime/inbox.h"
#include "client/cpp/runtime/runtime.h"

namespace monarch {

// The reply addresses of this process: calls that wait for answers, and ports. For each call it is known who
// still has to answer, so that the death of one process answers exactly what it leaves open. Threading:
// thread-safe (mu_); inboxes are filled outside the lock.
class CallTable {
 public:
  // Makes an event about `actor` out of whatever ended it.
  using EventFor = std::function<FailureEvent(const ActorAddress& actor)>;

  // Tells that a port of `owner` has room again.
  using Resume =
      std::function<void(uint64_t owner, std::vector<ProcAddress> procs, std::vector<uint32_t> words)>;
  struct Bounds {
    uint64_t port_bytes_max = 0;
    uint64_t port_messages_max = 0;
  };

  CallTable(const ProcAddress& self, std::weak_ptr<Waker> waker, const Bounds& bounds, Resume resume)
      : self_(self), waker_(std::move(waker)), bounds_(bounds), resume_(std::move(resume)) {}

  // `deadline_ns`: CLOCK_MONOTONIC, for TakeLate; 0: none.
  std::shared_ptr<Inbox> OpenCall(uint64_t owner, size_t answers, uint32_t word, int64_t deadline_ns);
  std::shared_ptr<Inbox> OpenPort(uint64_t owner, uint32_t word);
  // A call that is given up: who was sent it and did not answer, and which ranks it was not sent to.
  struct GivenUp {
    std::shared_ptr<Inbox> inbox;  // null: it was over before
    uint64_t owner = 0;
    std::vector<CallTarget> unanswered;
    uint32_t unsent_begin = 0, unsent_end = 0;
  };
  GivenUp Close(Inbox& inbox);
  // The calls whose deadline is not after `now_ns`. Their answers are taken by nobody from now on.
  std::vector<GivenUp> TakeLate(int64_t now_ns);
  // Puts a kCancel in place of each answer that did not come.
  void TellLate(const GivenUp& call);
  static constexpr int64_t kNoDeadline = INT64_MAX;
  int64_t NextDeadline() const;
  // One that nothing comes to, and that nobody knows.
  static std::shared_ptr<Inbox> Closed();
  // Before the frames leave: from now on these answer, or something is answered for them. False: a call that
  // was given up.
  bool Expect(const Inbox& call, absl::Span<const CallTarget> targets);
  // They were not sent after all.
  void Unexpect(const Inbox& call, absl::Span<const CallTarget> targets);
  size_t size() const;
  // Who still has to answer.
  std::vector<CallTarget> Owed(uint64_t call) const;

  // An answer or port message: the inbox that took it, null if nobody waits for it (any more). `pause`: it is
  // full, and the sender's proc has to be told.
  std::shared_ptr<Inbox> Deliver(Message message, bool* pause);
  // A port by its address; null if there is none, or it is a call.
  std::shared_ptr<Inbox> Port(uint64_t owner, uint64_t id) const;
  // Puts a failure in place of the answer of `rank`; with `expected_only` unless it has answered already.
  void Fail(uint64_t call, uint32_t rank, const FailureEvent& event, bool expected_only);
  // Puts an answer in place of the target's and returns the caller; none if it has answered already.
  std::optional<uint64_t> AnswerFor(uint64_t call, const CallTarget& target, FrameKind kind,
                                    std::string_view meta);
  // Everything that is still expected from the actor.
  void FailActor(const ActorAddress& actor, const FailureEvent& event);
  // Everything that is still expected from `proc` (null: from anywhere).
  void FailProc(const ProcAddress* proc, const EventFor& event_for);

 private:
  struct Entry {
    std::shared_ptr<Inbox> inbox;
    uint64_t owner = 0;
    bool is_call = false;
    std::vector<CallTarget> expected;
    uint32_t answers = 0, sent = 0;  // calls: how many are asked for, and were asked of somebody
    int64_t deadline_ns = 0;
  };
  struct Open {
    uint64_t call;
    uint64_t owner;
    CallTarget target;
  };
  // Each call to whom `fails` holds for.
  void FailWhere(absl::FunctionRef<bool(const ActorAddress&)> fails, const EventFor& event_for);
  // Takes `rank` out of what the entry expects; `from` is preferred if several have that rank.
  static bool TakeExpected(Entry* entry, uint32_t rank, const ActorAddress& from);
  std::shared_ptr<Inbox> Add(uint64_t owner, bool is_call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  GivenUp GiveUp(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  GivenUp Erase(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Push(const std::shared_ptr<Inbox>& inbox, Message message);
  Message AnswerMessage(const Open& open, FrameKind kind, std::string_view meta) const;
  Message FailureMessage(const Open& open, const FailureEvent& event) const;

  const ProcAddress self_;
  const std::weak_ptr<Waker> waker_;
  const Bounds bounds_;
  const Resume resume_;
  mutable Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<int64_t, uint64_t>> deadlines_ ABSL_GUARDED_BY(mu_);  // with the call's id
};

}  // namespace monarch
