#include "client/cpp/pending_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "message/control_message.h"

namespace monarch {
namespace {

constexpr char kFailureUrl[] = "monarch/FailureEvent";

absl::StatusCode CodeFromName(const std::string& name) {
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  return absl::StatusCode::kUnknown;
}

// What an endpoint returned or raised: its own code if it is a C++ actor, Unknown and the type's name else.
absl::Status ExceptionStatus(const Message& message) {
  const absl::StatusOr<Value> meta = DecodeValue(message.view.meta);
  if (!meta.ok()) return absl::InternalError("an endpoint failed, and its answer is malformed");
  const std::string type = (*meta)["type"].AsString().value_or("");
  const std::string text = (*meta)["message"].AsString().value_or("");
  const absl::StatusCode code = CodeFromName(type);
  if (code == absl::StatusCode::kUnknown && type != "UNKNOWN") {
    return absl::UnknownError(absl::StrCat(type, ": ", text));
  }
  return absl::Status(code, text);
}

}  // namespace

absl::StatusOr<FailureEvent> FailureOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFailureUrl);
  if (!payload.has_value()) return absl::NotFoundError("the status tells of no failure");
  return DecodeFailureEvent(std::string(*payload));
}

namespace internal {

absl::Status FailureStatus(const FailureEvent& event) {
  absl::Status status = absl::UnavailableError(event.Summary());
  status.SetPayload(kFailureUrl, absl::Cord(EncodeFailureEvent(event)));
  return status;
}

CollectedCall::CollectedCall(std::shared_ptr<Runtime> runtime, std::shared_ptr<Inbox> inbox, size_t answers)
    : runtime_(std::move(runtime)),
      inbox_(std::move(inbox)),
      missing_(answers),
      answers_(answers, absl::CancelledError("the call was cancelled")) {}

CollectedCall::~CollectedCall() { runtime_->CloseInbox(*inbox_); }

absl::Status CollectedCall::WaitAll(absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  MutexLock lock(mu_);
  while (missing_ > 0) {
    const absl::Duration left = std::max(deadline - clock.Now(), absl::ZeroDuration());
    if (collecting_) {
      if (left == absl::ZeroDuration()) return absl::DeadlineExceededError("wait: nothing in time");
      changed_.WaitFor(mu_, left);
      continue;
    }
    collecting_ = true;
    mu_.Unlock();
    const absl::Status waited = runtime_->Wait(*inbox_, left);
    mu_.Lock();
    collecting_ = false;
    changed_.NotifyAll();
    if (cancelled_) break;
    MONARCH_RETURN_IF_ERROR(waited);
    const size_t before = missing_;
    TakeAll();
    if (missing_ == before) return absl::InternalError("the call was closed with answers missing");
  }
  return absl::OkStatus();
}

void CollectedCall::Cancel() {
  MutexLock lock(mu_);
  // What has come would go with the inbox.
  TakeAll();
  if (missing_ == 0) return;
  cancelled_ = true;
  missing_ = 0;
  runtime_->CancelCall(*inbox_);
}

void CollectedCall::TakeAll() {
  while (std::optional<Message> message = inbox_->TryPop()) {
    Take(*message);
    --missing_;
  }
}

void CollectedCall::Take(const Message& message) {
  const size_t rank = message.header.rank;
  const size_t place = answers_.size() == 1 ? 0 : rank;
  if (place >= answers_.size()) return;  // The runtime matches answers to targets; this guards the vector.
  absl::StatusOr<Value>& answer = answers_[place];
  switch (message.header.kind) {
    case FrameKind::kReply:
      if (message.view.parts.empty()) {
        answer = Value();
      } else if (message.header.payload_kind == PayloadKind::kPickle) {
        answer = absl::UnimplementedError("the answer is a Python object");
      } else {
        const absl::Span<const uint8_t> part = message.view.parts.front();
        answer = DecodeValue({reinterpret_cast<const char*>(part.data()), part.size()});
      }
      return;
    case FrameKind::kFailure: {
      if (ignore_failures_) {
        answer = Value();
        return;
      }
      const absl::StatusOr<FailureEvent> event = DecodeFailureEvent(message.view.meta);
      answer = event.ok() ? FailureStatus(*event) : event.status();
      return;
    }
    case FrameKind::kCancel:
      answer = absl::DeadlineExceededError(
          absl::StrCat("no answer within the call's time limit from rank ", rank));
      return;
    default:
      answer = ExceptionStatus(message);
      return;
  }
}

}  // namespace internal
}  // namespace monarch
