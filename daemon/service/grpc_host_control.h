#pragma once

#include <memory>

#include "base/event_loop.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/host_control.h"

namespace monarch {

// `socket`: a connected stream socket that the other daemon serves its control plane on. `token`: in whose
// name requests are made there.
std::unique_ptr<HostControl> MakeGrpcHostControl(EventLoop* loop, ScopedFd socket, const StartToken& token);

}  // namespace monarch
