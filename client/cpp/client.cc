#include "monarch/client.h"

#include <utility>

#include "base/status_macros.h"
#include "client/cpp/runtime/failure_detail.h"
#include "client/cpp/session.h"

namespace monarch {

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ConnectOptions options) {
  MONARCH_ASSIGN_OR_RETURN(std::shared_ptr<internal::Session> session,
                           internal::Session::Open(std::move(options)));
  return std::unique_ptr<Client>(new Client(std::move(session)));
}

Client::~Client() { session_->End(); }

HostMesh Client::this_host() const { return HostMesh(session_); }

FailureEvent Client::WithDetail(const FailureEvent& event, absl::Duration timeout) const {
  return monarch::WithDetail(session_->runtime().get(), event, timeout);
}

}  // namespace monarch
