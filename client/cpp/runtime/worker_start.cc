#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/errno_status.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/crash_handler.h"
#include "client/cpp/runtime/handshake.h"
#include "client/cpp/runtime/runtime.h"
#include "client/cpp/runtime/runtime_impl.h"

namespace monarch {
namespace {

constexpr int kDaemonFd = 3;
constexpr int kLauncherFd = 4;

// An inherited socket: user code's children must not have it.
absl::StatusOr<PacketSocket> Inherited(int fd) {
  ScopedFd owned(fd);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    const int error = errno;
    static_cast<void>(owned.release());
    return ErrnoStatus("this process was not started as a worker: inherited socket", error);
  }
  return PacketSocket(std::move(owned));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::StartWorker() {
  Limits limits;
  MONARCH_RETURN_IF_ERROR(SetLimitsFromEnvironment(environ, &limits));
  MONARCH_RETURN_IF_ERROR(limits.Validate());
  const absl::Duration timeout = absl::Milliseconds(limits.spawn_phase_ms);
  Connection connection;
  connection.is_client = false;
  MONARCH_ASSIGN_OR_RETURN(connection.daemon, Inherited(kDaemonFd));
  MONARCH_ASSIGN_OR_RETURN(connection.launcher, Inherited(kLauncherFd));
  MONARCH_ASSIGN_OR_RETURN(connection.pages, SharedPages::Create(limits));
  Hello hello;
  hello.is_client = false;
  MONARCH_ASSIGN_OR_RETURN(hello.token, TakeBoot(timeout, &connection));
  MONARCH_RETURN_IF_ERROR(SayHello(hello, timeout, &connection));
  SetCrashLifeline(connection.pages.doorbell->lifeline_page());
  MONARCH_ASSIGN_OR_RETURN(std::unique_ptr<ServiceThread> service, ServiceThread::Start(nullptr));
  return RuntimeImpl::Create(std::move(connection), std::move(service), limits);
}

}  // namespace monarch
