#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"
#include "message/link.h"
#include "message/packet_socket.h"

namespace monarch {

// The native control socket: control messages both ways, and frames on their way through the daemon.
// Threading: Send, TrySendFrame and requests from any thread; Receive and Flush on the service thread.
class DaemonLink {
 public:
  // `want_write`: something waits for room in the socket; Flush when it is writable. Called without locks
  // held.
  DaemonLink(PacketSocket socket, size_t queue_bytes_max, std::function<void()> want_write)
      : socket_(std::move(socket)), queue_bytes_max_(queue_bytes_max), want_write_(std::move(want_write)) {}

  int fd() const { return socket_.fd(); }

  // Sends or queues. `fds` are duplicated if it has to wait. Unavailable; ResourceExhausted
  // (control_queue_bytes_max).
  absl::Status Send(const ControlMessage& message, absl::Span<const int> fds = {});
  // Never queues: frames have their own limits. kFull: Flush will be called when there is room.
  absl::StatusOr<SendResult> TrySendFrame(const FrameHeader& header, absl::Span<const uint8_t> payload);

  // A request: number it with NextRequest, Send it, then look until Answer has it.
  uint32_t NextRequest();
  bool HasAnswer(uint32_t request) const;
  // Takes the answer; Unavailable if none can come any more. To be called once per request, also after giving
  // up.
  absl::StatusOr<ControlMessage> TakeAnswer(uint32_t request);
  // False: nobody waits for it.
  bool Answered(ControlMessage message);
  // The daemon is away: what is sent waits for the next, and who waits for an answer has Unavailable. Both on
  // the service thread.
  void Detach();
  void Attach(PacketSocket socket);
  // No answers come any more.
  void Fail(absl::Status reason);
  // Why not; empty as long as some may come.
  std::string failure() const;

  // The end, at which a private daemon leaves.
  void Close();

  absl::StatusOr<bool> Receive(Packet* packet) { return socket_.TryReceive(packet); }
  // True: all queued packets are out, and frames may be tried again.
  bool Flush();

 private:
  struct Queued {
    std::string bytes;
    std::vector<ScopedFd> fds;
  };
  struct Request {
    bool done = false;
    ControlMessage answer;
  };
  absl::Status Enqueue(std::string bytes, absl::Span<const int> fds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PacketSocket socket_;  // sending: guarded by mu_; receiving: the service thread's
  const size_t queue_bytes_max_;
  const std::function<void()> want_write_;

  mutable Mutex mu_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mu_);
  size_t queue_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  bool away_ ABSL_GUARDED_BY(mu_) = false;
  uint32_t last_request_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint32_t, Request> requests_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
