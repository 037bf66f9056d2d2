#include "client/cpp/ctl/daemon_channel.h"

#include "absl/strings/str_cat.h"

namespace monarch::ctl {
namespace {

// Bounds what a daemon can make this process hold. A daemon at its limit of actors sends about 20 MiB.
constexpr int kAnswerBytesMax = 64 << 20;

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const DaemonPlace& place) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(place.Socket(), grpc::InsecureChannelCredentials(), arguments);
}

absl::Status CallStatus(const grpc::Status& status, absl::Duration timeout) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(absl::StrCat("not reachable: ", status.error_message()));
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
}

}  // namespace monarch::ctl
