#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "base/ndslice.h"
#include "base/status_macros.h"
#include "message/value.h"
#include "monarch/codec.h"

namespace monarch {

// The event behind a status that tells of a dead, stopped or failed callee; NotFound for any other status.
absl::StatusOr<FailureEvent> FailureOf(const absl::Status& status);

namespace internal {

// The answers of one call, in rank order. Threading: thread-safe; one waiter at a time gets the news, others
// follow.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // OK when every answer is there, or something in its place. DeadlineExceeded: the work goes on, and a later
  // wait may succeed. Cancelled: a signal came.
  virtual absl::Status WaitAll(absl::Duration timeout) = 0;
  // Frees whoever waits, and tells the callees; each answer that is missing is Cancelled.
  virtual void Cancel() = 0;
  // After WaitAll: one for each rank. A callee's error is its status; a dead one's is Unavailable (see
  // FailureOf).
  virtual const std::vector<absl::StatusOr<Value>>& answers() const = 0;
};

}  // namespace internal

// One value for each member of a mesh, in rank order. Threading: as its T.
template <typename T>
class ValueMesh {
 public:
  ValueMesh(Shape shape, std::vector<T> values) : shape_(std::move(shape)), values_(std::move(values)) {}
  const Shape& shape() const { return shape_; }
  size_t size() const { return values_.size(); }
  const T& operator[](size_t rank) const { return values_[rank]; }
  const std::vector<T>& values() const { return values_; }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  Shape shape_;
  std::vector<T> values_;
};

// The outcome of a call to one actor. May be read any number of times; dropping it cancels nothing, and
// neither does the `timeout` of a Get, which limits the wait alone. A call that was given up, by Cancel
// (Cancelled) or by its own limit (ActorMesh::WithTimeout: DeadlineExceeded), is dropped if it has not begun;
// an endpoint that runs goes on, and sees it in Actor::call_given_up. Threading: thread-safe.
template <typename T>
class Future {
 public:
  explicit Future(std::shared_ptr<internal::PendingCall> call) : call_(std::move(call)) {}
  explicit Future(absl::Status failed) : failed_(std::move(failed)) {}

  absl::StatusOr<T> Get(absl::Duration timeout = absl::InfiniteDuration()) const {
    MONARCH_RETURN_IF_ERROR(failed_);
    MONARCH_RETURN_IF_ERROR(call_->WaitAll(timeout));
    const absl::StatusOr<Value>& answer = call_->answers().front();
    if (!answer.ok()) return answer.status();
    return Codec<T>::From(*answer);
  }
  // Nobody wants the answer any more. Nothing once it is there.
  void Cancel() const {
    if (call_ != nullptr) call_->Cancel();
  }

 private:
  absl::Status failed_;
  std::shared_ptr<internal::PendingCall> call_;
};

// The same for an endpoint without a result. Threading: thread-safe.
template <>
class Future<void> {
 public:
  explicit Future(std::shared_ptr<internal::PendingCall> call) : call_(std::move(call)) {}
  explicit Future(absl::Status failed) : failed_(std::move(failed)) {}

  absl::Status Get(absl::Duration timeout = absl::InfiniteDuration()) const {
    MONARCH_RETURN_IF_ERROR(failed_);
    MONARCH_RETURN_IF_ERROR(call_->WaitAll(timeout));
    for (const absl::StatusOr<Value>& answer : call_->answers()) {
      if (!answer.ok()) return answer.status();
    }
    return absl::OkStatus();
  }
  // Nobody wants the answer any more. Nothing once it is there.
  void Cancel() const {
    if (call_ != nullptr) call_->Cancel();
  }

 private:
  absl::Status failed_;
  std::shared_ptr<internal::PendingCall> call_;
};

// The outcome of a call to every member of a mesh.
// Threading: thread-safe.
template <typename T>
class MeshFuture {
 public:
  MeshFuture(Shape shape, std::shared_ptr<internal::PendingCall> call)
      : shape_(std::move(shape)), call_(std::move(call)) {}
  explicit MeshFuture(absl::Status failed) : failed_(std::move(failed)) {}

  // All values, or the error of the lowest rank that has one.
  absl::StatusOr<ValueMesh<T>> Get(absl::Duration timeout = absl::InfiniteDuration()) const {
    MONARCH_ASSIGN_OR_RETURN(std::vector<absl::StatusOr<T>> each, GetEach(timeout));
    std::vector<T> values;
    values.reserve(each.size());
    for (absl::StatusOr<T>& one : each) {
      if (!one.ok()) return one.status();
      values.push_back(*std::move(one));
    }
    return ValueMesh<T>(shape_, std::move(values));
  }

  // What each rank answered, errors included: nothing that arrived is lost.
  absl::StatusOr<std::vector<absl::StatusOr<T>>> GetEach(
      absl::Duration timeout = absl::InfiniteDuration()) const {
    MONARCH_RETURN_IF_ERROR(failed_);
    MONARCH_RETURN_IF_ERROR(call_->WaitAll(timeout));
    std::vector<absl::StatusOr<T>> out;
    out.reserve(call_->answers().size());
    for (const absl::StatusOr<Value>& answer : call_->answers()) {
      if (answer.ok()) {
        out.push_back(Codec<T>::From(*answer));
      } else {
        out.push_back(answer.status());
      }
    }
    return out;
  }
  // Nobody wants the answers that are missing. What came stays; nothing once all are there.
  void Cancel() const {
    if (call_ != nullptr) call_->Cancel();
  }

 private:
  absl::Status failed_;
  Shape shape_;
  std::shared_ptr<internal::PendingCall> call_;
};

}  // namespace monarch
