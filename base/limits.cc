#include "base/limits.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

constexpr std::string_view kVariablePrefix = "MONARCH_LIMIT_";

struct Field {
  const char* name;
  int64_t Limits::*member;
  const char* what;
};

#define LIMIT(field, what) \
  { #field, &Limits::field, what }
constexpr Field kFields[] = {
    LIMIT(procs_per_session_max, "processes of one session on all hosts"),
    LIMIT(procs_per_host_max, "processes on one host"),
    LIMIT(sessions_per_host_max, "sessions on one host"),
    LIMIT(control_connections_per_proc_max, "control connections of one process to its daemon"),
    LIMIT(actors_per_proc_max, "actors in one process"),
    LIMIT(peer_hosts_max, "other hosts of one session"),
    LIMIT(mesh_dims_max, "dimensions of a mesh; at most 255"),
    LIMIT(mailbox_bytes_max, "memory of the messages in one mailbox"),
    LIMIT(mailbox_messages_max, "messages in one mailbox"),
    LIMIT(reorder_frames_max, "frames of one process that came before their turn"),
    LIMIT(ring_links_max, "links of one process by shared memory, others are relayed; 0 to 256"),
    LIMIT(frame_inline_bytes_max, "payload inside a frame, a larger one goes by segment; at most 4096"),
    LIMIT(control_queue_bytes_max, "what waits for one process that does not read its control socket"),
    LIMIT(relay_pause_bytes, "relayed frames for one process at which their senders pause"),
    LIMIT(relay_proc_queue_bytes_max, "relayed frames for one process at which they come back"),
    LIMIT(relay_queue_bytes_max, "frames that wait for one other host"),
    LIMIT(calls_pending_max, "calls of one process without an answer yet"),
    LIMIT(call_depth_max, "calls in a circle that is found"),
    LIMIT(segment_bytes_max, "shared memory for the messages that one process sends"),
    LIMIT(output_buffer_bytes_max, "output of workers that waits for one reader"),
    LIMIT(session_log_bytes_max, "log of one session's workers on disk"),
    LIMIT(send_wait_ms, "a sender's wait for room"),
    LIMIT(spawn_phase_ms, "each phase of a process's start"),
    LIMIT(stop_grace_ms, "from a stop request to TERM"),
    LIMIT(session_end_kill_ms, "from a client's death to KILL of its workers"),
    LIMIT(host_dead_ms, "silence of a host until it is gone"),
    LIMIT(remote_lease_ms, "silence of a session's home until the session ends here"),
    LIMIT(daemon_absence_ms, "how long workers go on without their daemon"),
};
#undef LIMIT
static_assert(sizeof(Limits) == sizeof(int64_t) * std::size(kFields), "a limit is missing in kFields");

// What a format in shared memory or on the wire can hold. All others are positive, without an end.
struct Range {
  int64_t Limits::*member;
  int64_t least;
  int64_t most;
};
constexpr Range kRanges[] = {
    {&Limits::mesh_dims_max, 1, 255},
    {&Limits::ring_links_max, 0, 256},
    {&Limits::frame_inline_bytes_max, 1, 4096},
};

struct Relation {
  int64_t Limits::*less;
  int64_t Limits::*more;
};

// The time ladder, and sizes that must fit into one another. Each is a strict "less than".
constexpr Relation kRelations[] = {
    {&Limits::host_dead_ms, &Limits::remote_lease_ms},
    {&Limits::remote_lease_ms, &Limits::daemon_absence_ms},
    {&Limits::session_end_kill_ms, &Limits::stop_grace_ms},
    {&Limits::relay_pause_bytes, &Limits::relay_proc_queue_bytes_max},
};

const char* NameOf(int64_t Limits::*member) {
  for (const Field& field : kFields) {
    if (field.member == member) return field.name;
  }
  return "?";
}

const Field* FieldNamed(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFields), std::end(kFields),
                                         [&](const Field& field) { return field.name == name; });
  return found == std::end(kFields) ? nullptr : found;
}

absl::Status CheckRange(const Field& field, int64_t value) {
  for (const Range& range : kRanges) {
    if (range.member != field.member) continue;
    if (value >= range.least && value <= range.most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("check limits: ", field.name, "=", value, " must be from ",
                                                   range.least, " to ", range.most));
  }
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("check limits: ", field.name, "=", value, " must be positive"));
}

}  // namespace

absl::Status Limits::Validate() const {
  for (const Field& field : kFields) {
    if (absl::Status checked = CheckRange(field, this->*field.member); !checked.ok()) return checked;
  }
  for (const Relation& relation : kRelations) {
    if (this->*relation.less < this->*relation.more) continue;
    return absl::InvalidArgumentError(absl::StrCat("check limits: ", NameOf(relation.less), "=",
                                                   this->*relation.less, " must be less than ",
                                                   NameOf(relation.more), "=", this->*relation.more));
  }
  return absl::OkStatus();
}

std::vector<LimitEntry> LimitTable(const Limits& limits) {
  std::vector<LimitEntry> table;
  table.reserve(std::size(kFields));
  for (const Field& field : kFields) table.push_back({field.name, field.what, limits.*field.member});
  return table;
}

absl::Status SetLimit(std::string_view name, int64_t value, Limits* limits) {
  const Field* const field = FieldNamed(name);
  if (field == nullptr) return absl::NotFoundError(absl::StrCat("no limit ", std::string(name)));
  limits->*field->member = value;
  return absl::OkStatus();
}

absl::Status SetLimitsFromEnvironment(const char* const* environment, Limits* limits) {
  Limits changed = *limits;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.substr(0, kVariablePrefix.size()) != kVariablePrefix) continue;
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string variable(entry.substr(0, equals));
    const std::string text(entry.substr(std::min(equals + 1, entry.size())));
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value)) {
      return absl::InvalidArgumentError(absl::StrCat(variable, "=", text, ": a limit is a whole number"));
    }
    if (!SetLimit(absl::AsciiStrToLower(variable.substr(kVariablePrefix.size())), value, &changed).ok()) {
      return absl::InvalidArgumentError(absl::StrCat(variable, ": there is no such limit"));
    }
  }
  *limits = changed;
  return absl::OkStatus();
}

}  // namespace monarch
