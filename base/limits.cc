#include "base/limits.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

struct Field {
  const char* name;
  int64_t Limits::*member;
};

#define LIMIT(field) \
  { #field, &Limits::field }
constexpr Field kFields[] = {
    LIMIT(procs_per_session_max),
    LIMIT(procs_per_host_max),
    LIMIT(sessions_per_host_max),
    LIMIT(control_connections_per_proc_max),
    LIMIT(actors_per_proc_max),
    LIMIT(peer_hosts_max),
    LIMIT(mesh_dims_max),
    LIMIT(mailbox_bytes_max),
    LIMIT(mailbox_messages_max),
    LIMIT(reorder_frames_max),
    LIMIT(ring_bytes),
    LIMIT(ring_links_max),
    LIMIT(wait_words),
    LIMIT(frame_inline_bytes_max),
    LIMIT(packet_bytes_max),
    LIMIT(control_queue_bytes_max),
    LIMIT(relay_pause_bytes),
    LIMIT(relay_proc_queue_bytes_max),
    LIMIT(relay_queue_bytes_max),
    LIMIT(relay_credit_bytes),
    LIMIT(calls_pending_max),
    LIMIT(cast_error_bytes_max),
    LIMIT(call_depth_max),
    LIMIT(segment_bytes_max),
    LIMIT(segments_mapped_max),
    LIMIT(regions_per_session_max),
    LIMIT(pinned_bytes_max),
    LIMIT(stderr_tail_lines),
    LIMIT(log_line_bytes_max),
    LIMIT(log_buffer_bytes_max),
    LIMIT(traceback_bytes_max),
    LIMIT(send_wait_ms),
    LIMIT(spawn_phase_ms),
    LIMIT(stop_grace_ms),
    LIMIT(cleanup_ms),
    LIMIT(session_end_kill_ms),
    LIMIT(host_suspected_ms),
    LIMIT(host_dead_ms),
    LIMIT(remote_lease_ms),
    LIMIT(daemon_restart_ms),
    LIMIT(daemon_absence_ms),
    LIMIT(cli_wait_ms),
};
#undef LIMIT
static_assert(sizeof(Limits) == sizeof(int64_t) * std::size(kFields), "a limit is missing in kFields");

struct Relation {
  int64_t Limits::*less;
  int64_t Limits::*more;
};

// The time ladder, and sizes that must fit into one another. Each is a strict "less than".
constexpr Relation kRelations[] = {
    {&Limits::host_suspected_ms, &Limits::host_dead_ms},
    {&Limits::host_dead_ms, &Limits::remote_lease_ms},
    {&Limits::remote_lease_ms, &Limits::daemon_restart_ms},
    {&Limits::daemon_restart_ms, &Limits::daemon_absence_ms},
    {&Limits::session_end_kill_ms, &Limits::stop_grace_ms},
    {&Limits::cleanup_ms, &Limits::stop_grace_ms},
    {&Limits::frame_inline_bytes_max, &Limits::ring_bytes},
    {&Limits::frame_inline_bytes_max, &Limits::packet_bytes_max},
    {&Limits::packet_bytes_max, &Limits::control_queue_bytes_max},
    {&Limits::relay_pause_bytes, &Limits::relay_proc_queue_bytes_max},
    {&Limits::relay_credit_bytes, &Limits::relay_queue_bytes_max},
};

const char* NameOf(int64_t Limits::*member) {
  for (const Field& field : kFields) {
    if (field.member == member) return field.name;
  }
  return "?";
}

bool IsRingSize(int64_t bytes) { return bytes >= 4096 && (bytes & (bytes - 1)) == 0; }

}  // namespace

absl::Status Limits::Validate() const {
  for (const Field& field : kFields) {
    if (this->*field.member > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("check limits: ", field.name, "=", this->*field.member, " must be positive"));
  }
  for (const Relation& relation : kRelations) {
    if (this->*relation.less < this->*relation.more) continue;
    return absl::InvalidArgumentError(absl::StrCat("check limits: ", NameOf(relation.less), "=",
                                                   this->*relation.less, " must be less than ",
                                                   NameOf(relation.more), "=", this->*relation.more));
  }
  if (!IsRingSize(ring_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("check limits: ring_bytes=", ring_bytes, " must be a power of two, at least 4096"));
  }
  return absl::OkStatus();
}

std::vector<LimitEntry> LimitTable(const Limits& limits) {
  std::vector<LimitEntry> table;
  table.reserve(std::size(kFields));
  for (const Field& field : kFields) table.push_back({field.name, limits.*field.member});
  return table;
}

}  // namespace monarch
