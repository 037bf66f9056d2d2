#include "message/hang_notice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "message/control_message.h"

namespace monarch {

std::string Hang::Text() const {
  const std::string seconds = absl::StrFormat("%.1f s", absl::ToDoubleSeconds(age));
  if (recovered) return absl::StrCat(method, " has ended after ", seconds);
  std::string text = absl::StrCat(method, " has been at work for ", seconds);
  if (!state.empty()) absl::StrAppend(&text, ": ", state);
  if (!wait_channel.empty()) absl::StrAppend(&text, " (", wait_channel, ")");
  return text;
}

Value ToValue(const HangNotice& notice) {
  return Value::Map{{"owner", ToValue(notice.owner)},
                    {"event", ToValue(notice.event)},
                    {"method", Value(notice.hang.method)},
                    {"age_ms", Value(absl::ToInt64Milliseconds(notice.hang.age))},
                    {"state", Value(notice.hang.state)},
                    {"wait_channel", Value(notice.hang.wait_channel)},
                    {"recovered", Value(notice.hang.recovered)}};
}

absl::StatusOr<HangNotice> HangNoticeFromValue(const Value& value) {
  HangNotice notice;
  MONARCH_ASSIGN_OR_RETURN(notice.owner, ActorAddressFromValue(value["owner"]));
  MONARCH_ASSIGN_OR_RETURN(notice.event, FailureEventFromValue(value["event"]));
  if (notice.event.kind != FailureKind::kHung) return absl::InvalidArgumentError("hang: of another kind");
  MONARCH_ASSIGN_OR_RETURN(notice.hang.method, value["method"].AsString());
  MONARCH_ASSIGN_OR_RETURN(const int64_t age_ms, value["age_ms"].AsInt());
  notice.hang.age = absl::Milliseconds(age_ms);
  MONARCH_ASSIGN_OR_RETURN(notice.hang.state, value["state"].AsString());
  MONARCH_ASSIGN_OR_RETURN(notice.hang.wait_channel, value["wait_channel"].AsString());
  MONARCH_ASSIGN_OR_RETURN(notice.hang.recovered, value["recovered"].AsBool());
  return notice;
}

}  // namespace monarch
