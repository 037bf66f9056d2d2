#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/limits.h"
#include "message/control_message.h"
#include "message/doorbell.h"
#include "message/packet_socket.h"
#include "message/segment.h"

namespace monarch {

inline constexpr int kProtocolVersion = 1;

// A private daemon that this process started; pid 0: none. It goes when its client says goodbye, or dies.
struct ClientProcess {
  int64_t pid = 0;
};

// What this process shares with others: made before anybody is told of it.
struct SharedPages {
  std::shared_ptr<Doorbell> doorbell;
  std::shared_ptr<Segment> segment;
  static absl::StatusOr<SharedPages> Create(const Limits& limits);
};

// A process that the daemon has welcomed.
struct Connection {
  SharedPages pages;
  PacketSocket daemon;
  PacketSocket launcher;  // workers
  ClientProcess private_daemon;
  SessionId session;
  ProcAddress self;
  StartToken control_token;
  std::string host_name;
  std::string return_dir;  // where the next daemon is found; empty: the session ends with this one
  std::string boot;        // workers
  bool is_client = true;
};

struct Hello {
  bool is_client = true;
  std::string name;    // client
  StartToken token;    // worker
  int stdout_fd = -1;  // client; -1: nowhere
  int stderr_fd = -1;
  int output_stream_fd = -1;
};

// Says hello on `connection`'s daemon socket and fills in what the welcome says. Unavailable: no answer in
// `timeout`, or the daemon closed; FailedPrecondition: it refused, or speaks another protocol; both versions
// are named.
absl::Status SayHello(const Hello& hello, absl::Duration timeout, Connection* connection);
// The worker's side of its launcher socket: boot, then the life-line, which the calling thread takes and
// holds.
absl::StatusOr<StartToken> TakeBoot(absl::Duration timeout, Connection* connection);

// One packet, waiting at most `timeout`; signals do not end it.
absl::StatusOr<Packet> ReceivePacket(PacketSocket* socket, absl::Duration timeout);
absl::Status SendPacket(PacketSocket* socket, const ControlMessage& message, absl::Span<const int> fds,
                        absl::Duration timeout);

}  // namespace monarch
