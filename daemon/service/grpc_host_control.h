#pragma once

#include <memory>

#include "base/event_loop.h"
#include "base/scoped_fd.h"
#include "daemon/host_control.h"

namespace monarch {

// `socket`: a connected stream socket that the other daemon serves its control plane on.
std::unique_ptr<HostControl> MakeGrpcHostControl(EventLoop* loop, ScopedFd socket);

}  // namespace monarch
