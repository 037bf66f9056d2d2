#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
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

// Which senders are to pause for the sake of which receivers. Processes by their number.
// Threading: confined to the control loop.
class RelayPauses {
 public:
  explicit RelayPauses(size_t pause_bytes) : pause_bytes_(pause_bytes) {}

  // A frame of `sender` came, after which so many bytes wait for `receiver`. True: tell `sender` to pause.
  bool OnFrame(uint64_t receiver, uint64_t sender, size_t waiting_bytes);
  // Fewer wait now. Whom to tell to go on.
  std::vector<uint64_t> OnSent(uint64_t receiver, size_t waiting_bytes);
  // It is dead, as a receiver and as a sender; who waits for it learns of the death.
  void Remove(uint64_t proc);

 private:
  const size_t pause_bytes_;
  std::map<uint64_t, std::set<uint64_t>> paused_;  // receiver -> senders
};

}  // namespace monarch
