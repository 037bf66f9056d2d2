#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/control_message.h"
#include "message/utf8.h"

namespace monarch {
namespace {

constexpr int kCauseDepthMax = 16;
// Far above what anybody reads, far below what a value can hold.
constexpr size_t kTextBytesMax = 16 << 20;

struct TextField {
  const char* key;
  std::string FailureEvent::*member;
};
constexpr TextField kTextFields[] = {
    {"mesh", &FailureEvent::mesh},
    {"rank_label", &FailureEvent::rank_label},
    {"actor_class", &FailureEvent::actor_class},
    {"host_name", &FailureEvent::host_name},
    {"phase", &FailureEvent::phase},
    {"reason", &FailureEvent::reason},
    {"stderr_tail", &FailureEvent::stderr_tail},
    {"traceback", &FailureEvent::traceback},
    {"backtrace", &FailureEvent::backtrace},
};

absl::Status Bad(absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("failure event: ", key, ": ", what));
}

template <typename T>
absl::Status ReadInt(const std::string& key, const Value& value, T max, T* out) {
  const auto number = value.AsInt();
  if (!number.ok()) return Bad(key, number.status().message());
  if (*number < int64_t{std::numeric_limits<T>::min()} || *number > int64_t{max}) {
    return Bad(key, absl::StrCat("out of range: ", *number));
  }
  *out = static_cast<T>(*number);
  return absl::OkStatus();
}

absl::StatusOr<FailureEvent> FromValue(const Value& value, int depth);

absl::Status ReadCause(const Value& value, int depth, FailureEvent* event) {
  const Value::List* causes = value.list();
  if (causes == nullptr || causes->size() > 1) return Bad("cause", "wanted a list of at most one");
  if (causes->empty()) return absl::OkStatus();
  if (depth == kCauseDepthMax) return Bad("cause", "nested too deep");
  MONARCH_ASSIGN_OR_RETURN(FailureEvent cause, FromValue(causes->front(), depth + 1));
  event->cause.push_back(std::move(cause));
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& key, const Value& value, int depth, FailureEvent* event) {
  for (const TextField& field : kTextFields) {
    if (key != field.key) continue;
    if (value.string() == nullptr) return Bad(key, "wanted str");
    event->*field.member = *value.string();
    return absl::OkStatus();
  }
  if (key == "kind") {
    uint8_t kind = 0;
    MONARCH_RETURN_IF_ERROR(ReadInt(key, value, static_cast<uint8_t>(FailureKind::kStartFailed), &kind));
    event->kind = static_cast<FailureKind>(kind);
    return absl::OkStatus();
  }
  if (key == "actor") {
    MONARCH_ASSIGN_OR_RETURN(event->actor, ActorAddressFromValue(value));
    return absl::OkStatus();
  }
  if (key == "rank") return ReadInt(key, value, std::numeric_limits<uint32_t>::max(), &event->rank);
  if (key == "pid") return ReadInt(key, value, std::numeric_limits<int64_t>::max(), &event->pid);
  if (key == "code") return ReadInt(key, value, std::numeric_limits<int32_t>::max(), &event->code);
  if (key == "unix_ms") return ReadInt(key, value, std::numeric_limits<int64_t>::max(), &event->unix_ms);
  if (key == "cause") return ReadCause(value, depth, event);
  return Bad(ToUtf8(key), "unknown field");
}

absl::StatusOr<FailureEvent> FromValue(const Value& value, int depth) {
  const Value::Map* fields = value.map();
  if (fields == nullptr) return absl::InvalidArgumentError("failure event: wanted a map");
  FailureEvent event;
  for (const auto& [key, field] : *fields) MONARCH_RETURN_IF_ERROR(ReadField(key, field, depth, &event));
  return event;
}

Value ToValueAt(const FailureEvent& event, int depth) {
  Value::Map fields;
  for (const TextField& field : kTextFields) {
    const std::string& text = event.*field.member;
    if (!text.empty()) fields[field.key] = ToUtf8(text.substr(0, kTextBytesMax));
  }
  if (event.kind != FailureKind::kUnspecified) fields["kind"] = static_cast<int>(event.kind);
  if (event.actor != ActorAddress()) fields["actor"] = ToValue(event.actor);
  if (event.rank != 0) fields["rank"] = event.rank;
  if (event.pid != 0) fields["pid"] = event.pid;
  if (event.code != 0) fields["code"] = int{event.code};
  if (event.unix_ms != 0) fields["unix_ms"] = event.unix_ms;
  if (!event.cause.empty() && depth < kCauseDepthMax) {
    fields["cause"] = Value::List{ToValueAt(event.cause.front(), depth + 1)};
  }
  return fields;
}

}  // namespace

Value ToValue(const FailureEvent& event) { return ToValueAt(event, 0); }

absl::StatusOr<FailureEvent> FailureEventFromValue(const Value& value) { return FromValue(value, 0); }

std::string EncodeFailureEvent(const FailureEvent& event) {
  // Its texts are repaired and bounded, and so is its depth.
  return *EncodeValue(ToValue(event));
}

absl::StatusOr<FailureEvent> DecodeFailureEvent(std::string_view bytes) {
  MONARCH_ASSIGN_OR_RETURN(Value value, DecodeValue(bytes));
  return FailureEventFromValue(value);
}

}  // namespace monarch
