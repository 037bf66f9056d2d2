#include "client/cpp/runtime/start_on.h"

#include <utility>

#include "base/status_macros.h"
#include "client/cpp/runtime/runtime_impl.h"
#include "client/cpp/runtime/service_thread.h"
#include "message/lifeline.h"

namespace monarch {

absl::StatusOr<std::unique_ptr<Runtime>> StartClientOn(PacketSocket socket,
                                                       const ClientProcess& private_daemon,
                                                       const Hello& hello, absl::Duration timeout,
                                                       const Limits& limits) {
  Connection connection;
  connection.daemon = std::move(socket);
  connection.private_daemon = private_daemon;
  MONARCH_ASSIGN_OR_RETURN(connection.pages, SharedPages::Create(limits));
  MONARCH_ASSIGN_OR_RETURN(std::unique_ptr<ServiceThread> service,
                           ServiceThread::Start([doorbell = connection.pages.doorbell] {
                             return HoldLifeline(doorbell->lifeline_page());
                           }));
  MONARCH_RETURN_IF_ERROR(SayHello(hello, timeout, &connection));
  return RuntimeImpl::Create(std::move(connection), std::move(service), limits);
}

}  // namespace monarch
