#include "daemon/grpc_server.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/control_connections.h"
#include "daemon/service/admin_service.h"
#include "daemon/service/event_service.h"
#include "daemon/service/host_service.h"
#include "daemon/service/process_service.h"

namespace monarch {
namespace {

// A request with the environment of each of many ranks.
constexpr int kRequestBytesMax = 64 << 20;
// For what is already answered to get out.
constexpr absl::Duration kLastAnswersMax = absl::Milliseconds(100);

absl::Status CheckStreamSocket(int fd) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    return ErrnoStatus("look at a control connection", errno);
  }
  // TCP comes from the listener for other daemons alone, which knows who is behind it.
  if ((domain != AF_UNIX && domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM) {
    return absl::InvalidArgumentError("open control: the fd is no stream socket");
  }
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return ErrnoStatus("set non-blocking", errno);
  return absl::OkStatus();
}

// Threading: as GrpcServer says.
class PosixGrpcServer final : public GrpcServer {
 public:
  PosixGrpcServer(DaemonContext* context, SessionManager* sessions)
      : host_(DescribeHost(*context)),
        connections_(context->limits.control_connections_per_proc_max),
        process_(context, sessions),
        event_(context),
        admin_(context, sessions) {}
  ~PosixGrpcServer() override { Shutdown(); }

  absl::Status Build(bool lists_all) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kRequestBytesMax);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 0);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
    builder.RegisterService(&host_);
    builder.RegisterService(&process_);
    if (lists_all) {
      builder.RegisterService(&event_);
      builder.RegisterService(&admin_);
    }
    server_ = builder.BuildAndStart();
    return server_ ? absl::OkStatus() : absl::InternalError("start gRPC server: refused");
  }

  absl::Status AddConnection(ScopedFd socket, const std::string& owner) override {
    MONARCH_RETURN_IF_ERROR(CheckStreamSocket(socket.get()));
    MONARCH_RETURN_IF_ERROR(connections_.Add(socket.get(), owner));
    grpc::AddInsecureChannelFromFd(server_.get(), socket.release());
    return absl::OkStatus();
  }

  void WarmUp() override;

  void Shutdown() override {
    if (server_) server_->Shutdown(absl::ToChronoTime(WallTime() + kLastAnswersMax));
    server_.reset();
  }

 private:
  HostService host_;
  ControlConnections connections_;
  ProcessService process_;
  EventService event_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> server_;
};

struct WarmUpCall {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::HostService::Stub> stub;
  grpc::ClientContext context;
  v1::GetHostRequest request;
  v1::GetHostResponse response;
};

void PosixGrpcServer::WarmUp() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return;
  ScopedFd client(fds[1]);
  if (!AddConnection(ScopedFd(fds[0]), "monarchd").ok()) return;
  auto call = std::make_shared<WarmUpCall>();
  call->channel = grpc::CreateInsecureChannelFromFd("self", client.release());
  call->stub = v1::HostService::NewStub(call->channel);
  call->context.set_deadline(absl::ToChronoTime(WallTime() + absl::Seconds(5)));
  call->stub->async()->GetHost(&call->context, &call->request, &call->response, [call](grpc::Status status) {
    if (!status.ok())
      LogWarning("daemon", "the server does not answer itself").With("error", status.error_message());
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(DaemonContext* context,
                                                              SessionManager* sessions, bool lists_all) {
  auto server = std::make_unique<PosixGrpcServer>(context, sessions);
  MONARCH_RETURN_IF_ERROR(server->Build(lists_all));
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace monarch
