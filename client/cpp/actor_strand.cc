#include "client/cpp/actor_strand.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/served_actor.h"
#include "message/control_message.h"
#include "message/utf8.h"

namespace monarch {
namespace {

// Fits into a frame whatever becomes of its bytes, so that an error can be told when the segment is full.
constexpr size_t kErrorTextMax = 1024;

// Restores the former actor when a handler returns, so that a pool thread outside of handlers counts as root.
class ActorScope {
 public:
  explicit ActorScope(uint64_t actor) : before_(std::exchange(served_actor, actor)) {}
  ~ActorScope() { served_actor = before_; }

 private:
  uint64_t before_;
};

// Shows, to who looks from outside, what the thread's actor is in. Threading: confined to that thread.
class ActivityScope {
 public:
  ActivityScope(Runtime* runtime, std::string_view what) : runtime_(runtime) {
    runtime_->SetActivity(what, RecentNs());
  }
  ~ActivityScope() { runtime_->SetActivity("", 0); }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  Runtime* const runtime_;
};

std::string_view AsText(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<Value::List> ArgumentsOf(const Message& message) {
  if (message.view.parts.empty()) return Value::List{};
  MONARCH_ASSIGN_OR_RETURN(const Value value, DecodeValue(AsText(message.view.parts.front())));
  if (value.list() == nullptr) return absl::InvalidArgumentError("arguments are not a list");
  return *value.list();
}

absl::StatusOr<Shape> ShapeOf(const Value& meta) {
  std::vector<std::string> labels;
  std::vector<size_t> sizes;
  if (const Value::List* list = meta["labels"].list()) {
    for (const Value& label : *list) {
      MONARCH_ASSIGN_OR_RETURN(std::string text, label.AsString());
      labels.push_back(std::move(text));
    }
  }
  if (const Value::List* list = meta["sizes"].list()) {
    for (const Value& size : *list) {
      MONARCH_ASSIGN_OR_RETURN(const int64_t number, size.AsInt());
      if (number <= 0) return absl::InvalidArgumentError("a size is not positive");
      sizes.push_back(static_cast<size_t>(number));
    }
  }
  MONARCH_ASSIGN_OR_RETURN(NDSlice slice, NDSlice::RowMajor(std::move(sizes)));
  return Shape::Create(std::move(labels), std::move(slice));
}

// User code: what it throws becomes a status here and goes no further.
template <typename F>
auto Guarded(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return absl::UnknownError(absl::StrCat("exception: ", error.what()));
  } catch (...) {
    return absl::UnknownError("exception that is no std::exception");
  }
}

FailureEvent ExceptionEvent(const absl::Status& status) {
  FailureEvent event;
  event.kind = FailureKind::kException;
  event.reason = status.ToString();
  return event;
}

}  // namespace

uint64_t CurrentActor() { return served_actor != 0 ? served_actor : kRootActor; }

ActorStrand::ActorStrand(Runtime* runtime, const ActorTypes* types, RuntimeTask create)
    : runtime_(runtime),
      types_(types),
      id_(create.actor),
      mailbox_(create.mailbox),
      create_(std::move(create)) {}

bool ActorStrand::ended() const {
  MutexLock lock(mu_);
  return ended_;
}

bool ActorStrand::Run(size_t messages_max) {
  {
    MutexLock lock(mu_);
    if (running_) {
      // The thread that runs it looks again, so that no news is lost between its last look and its leaving.
      again_ = true;
      return false;
    }
    running_ = true;
  }
  ActorScope scope(id_);
  size_t left = messages_max;
  while (true) {
    if (!constructed_) Construct();
    while (left > 0) {
      std::optional<Message> message = mailbox_->TryPop();
      if (!message.has_value()) break;
      --left;
      Handle(*std::move(message));
    }
    MutexLock lock(mu_);
    if (left > 0 && std::exchange(again_, false)) continue;
    again_ = false;
    running_ = false;
    return left == 0;
  }
}

void ActorStrand::Construct() {
  constructed_ = true;
  const ActivityScope shown(runtime_, "constructor");
  const absl::Status status = Guarded([&]() -> absl::Status {
    MONARCH_ASSIGN_OR_RETURN(const Value meta, DecodeValue(create_.create.view.meta));
    MONARCH_ASSIGN_OR_RETURN(const std::string class_name, meta["class"].AsString());
    type_ = types_->Find(class_name);
    if (type_ == nullptr) {
      return absl::NotFoundError(absl::StrCat("this program has no actor class \"", class_name, "\""));
    }
    MONARCH_ASSIGN_OR_RETURN(const int64_t rank, meta["rank"].AsInt());
    MONARCH_ASSIGN_OR_RETURN(Shape shape, ShapeOf(meta));
    MONARCH_ASSIGN_OR_RETURN(const Value::List args, ArgumentsOf(create_.create));
    auto made = type_->factory()(args);
    if (!made.ok()) return made.status();
    actor_ = *std::move(made);
    actor_->rank_ = static_cast<size_t>(rank);
    actor_->shape_ = std::move(shape);
    return absl::OkStatus();
  });
  create_ = {};  // Its payload may be a block of the spawner's segment.
  if (!status.ok()) Fail(ExceptionEvent(status));
}

void ActorStrand::Handle(Message message) {
  if (ended()) return;  // EndActor answers what is still queued.
  switch (message.header.kind) {
    case FrameKind::kCall:
      HandleCall(message);
      return;
    case FrameKind::kStopActor: {
      std::string reason = "stopped";
      if (auto meta = DecodeValue(message.view.meta); meta.ok()) {
        if (auto text = (*meta)["reason"].AsString(); text.ok()) reason = *std::move(text);
      }
      Stop(reason);
      static_cast<void>(runtime_->Reply(message, FrameKind::kReply, {}));
      return;
    }
    case FrameKind::kActorFailed:
      HandleFailure(message);
      return;
    default:
      return;  // Nothing else is addressed to an actor; the runtime refuses it earlier.
  }
}

void ActorStrand::HandleCall(const Message& message) {
  const absl::StatusOr<Value> result = Guarded([&]() -> absl::StatusOr<Value> {
    MONARCH_ASSIGN_OR_RETURN(const Value meta, DecodeValue(message.view.meta));
    const Value::List* list = meta.list();
    if (list == nullptr || list->empty()) return absl::InvalidArgumentError("the call names no method");
    MONARCH_ASSIGN_OR_RETURN(const std::string method, list->front().AsString());
    if (message.header.payload_kind == PayloadKind::kPickle) {
      return absl::UnimplementedError(
          absl::StrCat(method, ": a C++ actor takes values, not pickled arguments"));
    }
    const ActorType::Method* found = type_->FindMethod(method);
    if (found == nullptr) return absl::NotFoundError(absl::StrCat("no endpoint \"", method, "\""));
    MONARCH_ASSIGN_OR_RETURN(const Value::List args, ArgumentsOf(message));
    const ActivityScope shown(runtime_, method);
    actor_->given_up_ = [this, &message] { return mailbox_->IsCancelled(message); };
    return (*found)(*actor_, args);
  });
  actor_->given_up_ = nullptr;
  absl::Status error = result.status();
  if (result.ok()) {
    const absl::Status sent = SendResult(message, *result);
    if (sent.ok()) return;
    // Too large, or no room: the caller is told that, in place of waiting for ever.
    error = absl::Status(sent.code(), absl::StrCat("the result cannot be sent: ", sent.message()));
  }
  if (message.header.port_id == 0) {  // Nobody hears of it but the owner.
    Fail(ExceptionEvent(error));
    return;
  }
  const std::string text(error.message());
  absl::Status told = TellError(message, error.code(), text);
  if (!told.ok()) told = TellError(message, error.code(), text.substr(0, kErrorTextMax));
  if (!told.ok()) LogWarning("worker", "a caller was not answered").With("status", told.ToString());
}

absl::Status ActorStrand::SendResult(const Message& call, const Value& result) {
  MONARCH_ASSIGN_OR_RETURN(const std::string bytes, EncodeValue(result));
  const absl::Span<const uint8_t> part(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return runtime_->Reply(call, FrameKind::kReply, {PayloadKind::kValue, {}, {&part, 1}});
}

absl::Status ActorStrand::TellError(const Message& call, absl::StatusCode code, const std::string& text) {
  const Value::Map fields = {
      {"type", absl::StatusCodeToString(code)},
      {"message", ToUtf8(text)},
      {"traceback", ""},
  };
  MONARCH_ASSIGN_OR_RETURN(const std::string meta, EncodeValue(fields));
  return runtime_->Reply(call, FrameKind::kException, {PayloadKind::kNone, meta, {}});
}

void ActorStrand::HandleFailure(const Message& message) {
  auto event = DecodeFailureEvent(message.view.meta);
  if (!event.ok()) return;
  const ActivityScope shown(runtime_, "OnFailure");
  const absl::StatusOr<bool> handled =
      Guarded([&]() -> absl::StatusOr<bool> { return actor_->OnFailure(*event); });
  if (handled.ok() && *handled) return;
  FailureEvent own;
  own.kind = FailureKind::kException;
  own.reason = handled.ok() ? "it did not handle the failure of something it owns"
                            : absl::StrCat("while handling another failure: ", handled.status().ToString());
  own.cause.push_back(*std::move(event));
  Fail(std::move(own));
}

void ActorStrand::Stop(const std::string& reason) {
  if (ended()) return;
  FailureEvent event;
  event.kind = FailureKind::kStopped;
  event.reason = reason;
  End(std::move(event), nullptr);
}

void ActorStrand::Fail(FailureEvent event) {
  const FailureEvent copy = event;
  End(std::move(event), &copy);
}

void ActorStrand::End(FailureEvent event, const FailureEvent* failure) {
  if (actor_ != nullptr) {
    const ActorScope scope(id_);  // A stop of the whole process comes from the main thread.
    const ActivityScope shown(runtime_, "OnStop");
    const absl::Status status = Guarded([&]() -> absl::Status {
      actor_->OnStop(failure);
      return absl::OkStatus();
    });
    if (!status.ok() && failure == nullptr) event = ExceptionEvent(status);
    actor_.reset();
  }
  {
    MutexLock lock(mu_);
    ended_ = true;
  }
  runtime_->EndActor(id_, std::move(event));
}

}  // namespace monarch
