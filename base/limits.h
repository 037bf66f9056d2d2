#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace monarch {

// Every maximum of the system that can be chosen and every time it waits, in one place: set by monarchd's
// options and by the environment (SetLimitsFromEnvironment), checked at start, shown by `monarchctl doctor`.
// Where nothing else is said, reaching a maximum gives ResourceExhausted that names the limit, to whoever
// asked for more; what exists goes on. Names say the unit: bytes, ms; else a count. Sizes that a format on
// the wire or in shared memory fixes are constants there. Threading: plain data; constant once handed to a
// component.
struct Limits {
  // Processes.
  // Worker processes of one session on all hosts; the spawn is refused as a whole. Bounds launcher tables.
  int64_t procs_per_session_max = 4096;
  // Worker processes on one host, over all sessions. Bounds the daemon's tables and, with them, its fds.
  int64_t procs_per_host_max = 16384;
  // Sessions with a launcher on one host. Too small: a shared host refuses its next user.
  int64_t sessions_per_host_max = 1024;
  // Control connections that one process has open to its daemon, or, of daemons, for one session. One is
  // enough for a program; more are those that it dropped and that are not closed yet. Bounds the daemon's
  // fds.
  int64_t control_connections_per_proc_max = 16;
  // Actors in one process; a thread each in Python, so the kernel's thread limit comes next.
  int64_t actors_per_proc_max = 65536;
  // Other daemons that one daemon keeps connections to.
  int64_t peer_hosts_max = 4096;
  // Dimensions of a mesh. Bounds what a decoder believes.
  int64_t mesh_dims_max = 32;

  // Messages.
  // Memory held by one actor's mailbox: payload, and what each message takes beside it. A sender waits
  // send_wait_ms for room, then has the error.
  int64_t mailbox_bytes_max = int64_t{64} << 20;
  // Messages in one mailbox; as above.
  int64_t mailbox_messages_max = 1'000'000;
  // Frames that came before their turn, held back by one process for all pairs of actors. More: the path is
  // broken and its link is closed.
  int64_t reorder_frames_max = 1024;
  // Links of one process that have a ring; frames of further ones go through the daemon: slower, not refused.
  // 0: all do. At most 256, the marks in a doorbell.
  int64_t ring_links_max = 256;
  // Payload carried inside a frame; a larger one goes by segment. At most 4096: it shares a ring with others.
  int64_t frame_inline_bytes_max = 4096;
  // Bytes queued for one native control socket whose peer does not read. Reached: the peer is cut off, for it
  // holds notices that others wait for.
  int64_t control_queue_bytes_max = 8 << 20;
  // Frames queued at the daemon for one local process, at which those who send more are told to pause until
  // half of it is left. Too small: relayed senders stop at every burst.
  int64_t relay_pause_bytes = 256 << 10;
  // The same queue's hard end, beyond which a frame comes back undelivered. Leaves room for what a socket's
  // buffer of each of many senders holds when they are told to pause, and for answers, which never pause.
  int64_t relay_proc_queue_bytes_max = 16 << 20;
  // Frames kept for one peer daemon until it acknowledges them; then credits stop and senders wait.
  int64_t relay_queue_bytes_max = int64_t{256} << 20;
  // Calls of one process without an answer yet; the next call is refused.
  int64_t calls_pending_max = 1'000'000;
  // Depth of a call chain, each waiting for the next; ends recursion between actors.
  int64_t call_depth_max = 256;

  // Memory.
  // One process's segment: address space, not memory, until it is touched. Full: the sender waits for blocks
  // to come back, at most send_wait_ms.
  int64_t segment_bytes_max = int64_t{16} << 30;

  // Output of workers.
  // What waits for one of a session's readers that does not keep up: the client's stdout, its stderr, the log
  // on disk; four times as much for an output stream, whose client formats each line. Then the oldest is
  // dropped, and a line says how much.
  int64_t output_buffer_bytes_max = 4 << 20;
  // A session's log on disk. At half of it the log becomes <log>.1, and a new one begins.
  int64_t session_log_bytes_max = int64_t{64} << 20;

  // Times.
  // A sender's wait for room, then ResourceExhausted. Too small: bursts fail; too large: a stuck peer goes
  // unnoticed.
  int64_t send_wait_ms = 30'000;
  // Each named phase of a spawn, then the spawn fails with that phase. Too small: slow imports fail.
  int64_t spawn_phase_ms = 30'000;
  // From a stop to KILL.
  int64_t stop_grace_ms = 10'000;
  // From a client's death to KILL of its workers: nobody waits for their results.
  int64_t session_end_kill_ms = 1'000;
  // Silence of a host until it is dead and everything on it unreachable.
  int64_t host_dead_ms = 5'000;
  // A remote client's renewals; without one for so long its session ends.
  int64_t remote_lease_ms = 30'000;
  // How long launchers keep a session alive without a daemon.
  int64_t daemon_absence_ms = 600'000;

  // InvalidArgument naming the first limit that is out of range, or the first rung of the time ladder, or
  // other relation, that does not hold.
  absl::Status Validate() const;
};

struct LimitEntry {
  std::string_view name;  // the field's name
  std::string_view what;  // in a few words
  int64_t value;
};
// All of them, in the order above.
std::vector<LimitEntry> LimitTable(const Limits& limits);

// Sets the one of that name, unchecked. NotFound: there is none.
absl::Status SetLimit(std::string_view name, int64_t value, Limits* limits);
// Sets those that the environment has: MONARCH_LIMIT_SEND_WAIT_MS=500 and the like. InvalidArgument names a
// variable with no such limit or a value that is no number; then nothing is set.
// `environment`: as environ, "NAME=value" up to a null.
absl::Status SetLimitsFromEnvironment(const char* const* environment, Limits* limits);

}  // namespace monarch
