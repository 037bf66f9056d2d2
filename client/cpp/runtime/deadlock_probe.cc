#include "client/cpp/runtime/deadlock_probe.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/control_message.h"

namespace monarch {
namespace {

constexpr size_t kStepFields = 8;
// Far more than a step takes; its names are short.
constexpr size_t kStepBytesMax = 2048;

Value ToValue(const WaitStep& step) {
  return Value::List{
      ToValue(step.actor),  step.wait, step.name, step.endpoint,
      ToValue(step.callee), step.call, step.rank, step.queued.has_value() ? Value(*step.queued) : Value()};
}

absl::StatusOr<WaitStep> StepFromValue(const Value& value) {
  const Value::List* list = value.list();
  if (list == nullptr || list->size() != kStepFields) return absl::InvalidArgumentError("probe: a step");
  WaitStep step;
  MONARCH_ASSIGN_OR_RETURN(step.actor, ActorAddressFromValue((*list)[0]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t wait, (*list)[1].AsInt());
  MONARCH_ASSIGN_OR_RETURN(step.name, (*list)[2].AsString());
  MONARCH_ASSIGN_OR_RETURN(step.endpoint, (*list)[3].AsString());
  MONARCH_ASSIGN_OR_RETURN(step.callee, ActorAddressFromValue((*list)[4]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t call, (*list)[5].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t rank, (*list)[6].AsInt());
  if (!(*list)[7].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(step.queued, (*list)[7].AsString());
  }
  step.wait = static_cast<uint64_t>(wait);
  step.call = static_cast<uint64_t>(call);
  step.rank = static_cast<uint32_t>(rank);
  return step;
}

}  // namespace

Value ToValue(const Probe& probe) {
  Value::List path;
  for (const WaitStep& step : probe.path) path.push_back(ToValue(step));
  return Value::Map{{"phase", static_cast<int>(probe.phase)},
                    {"id", probe.id},
                    {"path", std::move(path)},
                    {"at", uint64_t{probe.at}}};
}

absl::StatusOr<Probe> DecodeProbe(std::string_view bytes, size_t steps_max) {
  if (bytes.size() > steps_max * kStepBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("probe: ", bytes.size(), " bytes"));
  }
  MONARCH_ASSIGN_OR_RETURN(const Value value, DecodeValue(bytes));
  Probe probe;
  MONARCH_ASSIGN_OR_RETURN(const int64_t phase, value["phase"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t id, value["id"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t at, value["at"].AsInt());
  const Value::List* path = value["path"].list();
  if (phase < static_cast<int64_t>(Probe::Phase::kSearch) ||
      phase > static_cast<int64_t>(Probe::Phase::kVerdict)) {
    return absl::InvalidArgumentError(absl::StrCat("probe: phase ", phase));
  }
  if (path == nullptr || path->empty() || path->size() > steps_max) {
    return absl::InvalidArgumentError("probe: no path, or too long a one");
  }
  if (at < 0 || static_cast<size_t>(at) >= path->size()) {
    return absl::InvalidArgumentError(absl::StrCat("probe: step ", at, " of ", path->size()));
  }
  for (const Value& item : *path) {
    MONARCH_ASSIGN_OR_RETURN(WaitStep step, StepFromValue(item));
    if (!probe.path.empty() && probe.path.back().callee != step.actor) {
      return absl::InvalidArgumentError("probe: the path is not connected");
    }
    probe.path.push_back(std::move(step));
  }
  probe.phase = static_cast<Probe::Phase>(phase);
  probe.id = static_cast<uint64_t>(id);
  probe.at = static_cast<size_t>(at);
  if (probe.phase != Probe::Phase::kSearch && probe.path.back().callee != probe.path.front().actor) {
    return absl::InvalidArgumentError("probe: the path is no cycle");
  }
  return probe;
}

}  // namespace monarch
