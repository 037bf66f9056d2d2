#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "message/control_message.h"
#include "message/frame.h"

namespace monarch {

// Checks a frame that a process sent to the daemon for another one. InvalidArgument: not a frame, or of a
// length that is not its header's; PermissionDenied: it speaks for another process or session than the
// socket's own.
absl::StatusOr<FrameHeader> CheckRelayedFrame(const std::string& packet, const SessionId& session,
                                              const ProcAddress& sender);

// Tells the sender that the frame in `packet` (checked) was not delivered.
ControlMessage UndeliveredMessage(const std::string& packet, const absl::Status& why);

// Which senders are to pause for the sake of which receivers.
// Threading: confined to the control loop.
class RelayPauses {
 public:
  explicit RelayPauses(size_t pause_bytes) : pause_bytes_(pause_bytes) {}

  // A frame of `sender` came, after which so many bytes wait for `receiver`. True: tell `sender` to pause.
  bool OnFrame(const ProcAddress& receiver, const ProcAddress& sender, size_t waiting_bytes);
  // Fewer wait now. Whom to tell to go on.
  std::vector<ProcAddress> OnSent(const ProcAddress& receiver, size_t waiting_bytes);
  // The same where all receivers share one queue. Pairs of receiver and sender.
  std::vector<std::pair<ProcAddress, ProcAddress>> OnSentToAll(size_t waiting_bytes);
  // It is dead, as a receiver and as a sender; who waits for it learns of the death.
  void Remove(const ProcAddress& proc);

 private:
  size_t pause_bytes_;
  std::map<ProcAddress, std::set<ProcAddress>> paused_;  // receiver -> senders
};

}  // namespace monarch
