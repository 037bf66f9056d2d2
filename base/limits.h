#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace monarch {

// Every maximum of the system and every time it waits, in one place: set by options, checked at start, shown
// by `monarchctl doctor`. Where nothing else is said, reaching a maximum gives ResourceExhausted that names
// the limit, to whoever asked for more; what exists goes on. Names say the unit: bytes, ms, lines; else a
// count. Threading: plain data; constant once handed to a component.
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
  // One direction of a ring. A full ring makes its sender wait as for a mailbox. A power of two of whole
  // pages.
  int64_t ring_bytes = 16 << 10;
  // Links of one process that have a ring; frames of further ones go through the daemon: slower, not refused.
  int64_t ring_links_max = 256;
  // Threads of one process that can wait for frames at a time; fixed by the doorbell's layout.
  int64_t wait_words = 1024;
  // Payload carried inside a frame; a larger one goes by segment. Smaller than a ring and a packet.
  int64_t frame_inline_bytes_max = 4096;
  // One packet on a native socket. Larger: InvalidArgument at the sender, and a receiver closes the
  // connection.
  int64_t packet_bytes_max = 64 << 10;
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
  // What one destination process may have on the way through a relay; keeps a stuck receiver from taking all
  // of it.
  int64_t relay_credit_bytes = int64_t{4} << 20;
  // Calls of one process without an answer yet; the next call is refused.
  int64_t calls_pending_max = 1'000'000;
  // Exceptions kept in one combined answer to a cast; of further ranks only rank and kind are told.
  int64_t cast_error_bytes_max = 1 << 20;
  // Depth of a call chain, each waiting for the next; ends recursion between actors.
  int64_t call_depth_max = 256;

  // Memory.
  // One process's segment: address space, not memory, until it is touched. Full: the sender waits for blocks
  // to come back, at most send_wait_ms.
  int64_t segment_bytes_max = int64_t{16} << 30;
  // Segments of other processes mapped by one process; the least used is unmapped first.
  int64_t segments_mapped_max = 4096;
  // Registered memory regions of one session on one host.
  int64_t regions_per_session_max = 65536;
  // Memory pinned for one session on one host, beside RLIMIT_MEMLOCK, which may be lower and names itself.
  int64_t pinned_bytes_max = int64_t{1} << 40;

  // Logs and reports.
  // Last lines of a worker's stderr in a failure event; earlier ones are in the log only.
  int64_t stderr_tail_lines = 20;
  // A line of a worker's output; the rest of it is a line of its own.
  int64_t log_line_bytes_max = 16 << 10;
  // Output buffered for one session while no client reads; then the oldest is dropped, counted, and the count
  // shown.
  int64_t log_buffer_bytes_max = 8 << 20;
  // Back-trace in a failure event; cut at its beginning, the last frames tell most.
  int64_t traceback_bytes_max = 64 << 10;

  // Times.
  // A sender's wait for room, then ResourceExhausted. Too small: bursts fail; too large: a stuck peer goes
  // unnoticed.
  int64_t send_wait_ms = 30'000;
  // Each named phase of a spawn, then the spawn fails with that phase. Too small: slow imports fail.
  int64_t spawn_phase_ms = 30'000;
  // From a stop to KILL. Contains cleanup_ms.
  int64_t stop_grace_ms = 10'000;
  // An actor's __cleanup__, then it is abandoned and TERM follows.
  int64_t cleanup_ms = 3'000;
  // From a client's death to KILL of its workers: nobody waits for their results.
  int64_t session_end_kill_ms = 1'000;
  // Silence of a host until it is suspected (shown, nothing else).
  int64_t host_suspected_ms = 1'500;
  // Silence of a host until it is dead and everything on it unreachable.
  int64_t host_dead_ms = 5'000;
  // A remote client's renewals; without one for so long its session ends.
  int64_t remote_lease_ms = 30'000;
  // A host that answers but has no daemon, until it counts as dead.
  int64_t daemon_restart_ms = 120'000;
  // How long launchers keep a session alive without a daemon.
  int64_t daemon_absence_ms = 600'000;
  // monarchctl's wait for an answer.
  int64_t cli_wait_ms = 5'000;

  // InvalidArgument naming the first limit that is not positive, or the first rung of the time ladder, or
  // other relation, that does not hold.
  absl::Status Validate() const;
};

struct LimitEntry {
  std::string_view name;  // the field's name
  int64_t value;
};
// All of them, in the order above.
std::vector<LimitEntry> LimitTable(const Limits& limits);

}  // namespace monarch
