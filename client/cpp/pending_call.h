#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "client/cpp/runtime/runtime.h"
#include "monarch/future.h"

namespace monarch::internal {

// Collects a call's answers from its inbox: one of those who wait sleeps on the inbox, the others for it.
// Threading: thread-safe (mu_; not held while the one sleeps).
class CollectedCall : public PendingCall {
 public:
  // The answer of rank r of the mesh called goes to place r; a single one, whatever its rank, to place 0.
  CollectedCall(std::shared_ptr<Runtime> runtime, std::shared_ptr<Inbox> inbox, size_t answers);
  ~CollectedCall() override;
  absl::Status WaitAll(absl::Duration timeout) override;
  void Cancel() override;
  const std::vector<absl::StatusOr<Value>>& answers() const override { return answers_; }
  // For a stop: a callee that is gone already answers like one that went. Before the first WaitAll.
  void IgnoreFailures() { ignore_failures_ = true; }

 private:
  void TakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const Message& message);

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Inbox> inbox_;
  bool ignore_failures_ = false;
  Mutex mu_;
  CondVar changed_;
  bool collecting_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  size_t missing_ ABSL_GUARDED_BY(mu_);
  // Cancelled where none came. Written under mu_, constant once missing_ is 0.
  std::vector<absl::StatusOr<Value>> answers_;
};

// The Status under which a dead, stopped or failed callee shows: Unavailable, with the event attached.
absl::Status FailureStatus(const FailureEvent& event);

}  // namespace monarch::internal
