#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "daemon/host_address.h"
#include "message/control_message.h"
#include "message/packet_stream.h"

namespace monarch {

struct DialedHost {
  std::unique_ptr<PacketStream> stream;
  Value welcome;  // its body
};

// Connects to a worker daemon, sends the hello and waits for the answer. Nobody there yet is no error until
// `timeout`, then Unavailable that names the address; another user's daemon is PermissionDenied; a refusal is
// what the daemon said. `done` comes once, posted, unless the result is dropped before.
// Threading: confined to the control loop.
class HostDialer {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&, DialedHost)>;
  virtual ~HostDialer() = default;
  // `done` does not come any more.
  virtual void Cancel() = 0;
};
std::unique_ptr<HostDialer> DialHost(EventLoop* loop, const HostAddress& address, ControlMessage hello,
                                     absl::Duration timeout, HostDialer::Done done);

}  // namespace monarch
