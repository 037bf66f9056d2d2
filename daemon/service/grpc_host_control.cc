#include "daemon/service/grpc_host_control.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>

#include <limits>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "daemon/service/process_conversion.h"
#include "proto/control_token.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/monarch/v1/process.grpc.pb.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

// Beyond what the other daemon bounds itself; only for one that hangs.
constexpr absl::Duration kMargin = absl::Seconds(15);
constexpr int kSpawnPhases = 4;

// What gRPC's threads touch. Threading: guarded by mu.
struct Calls {
  Mutex mu;
  CondVar ended;
  std::set<grpc::ClientContext*> contexts ABSL_GUARDED_BY(mu);
};

template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
  absl::AnyInvocable<void(const absl::Status&, const Response&)> done;
};

// Threading: as HostControl.
class GrpcHostControl final : public HostControl {
 public:
  GrpcHostControl(EventLoop* loop, ScopedFd socket, const StartToken& token) : loop_(loop), token_(token) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 16 << 20);
    arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
    stub_ = v1::ProcessService::NewStub(
        grpc::CreateCustomInsecureChannelFromFd("monarchd", socket.release(), arguments));
  }

  ~GrpcHostControl() override {
    MutexLock lock(calls_.mu);
    for (grpc::ClientContext* context : calls_.contexts) context->TryCancel();
    while (!calls_.contexts.empty()) calls_.ended.Wait(calls_.mu);
  }

  void Spawn(const SpawnRequest& request, absl::AnyInvocable<void(const SpawnResult&)> reply) override {
    const absl::Duration phase = request.phase_timeout > absl::ZeroDuration()
                                     ? request.phase_timeout
                                     : absl::Milliseconds(Limits().spawn_phase_ms);
    Start<v1::SpawnProcsRequest, v1::SpawnProcsResponse>(
        &v1::ProcessService::Stub::async_interface::SpawnProcs, ToProto(request), kSpawnPhases * phase,
        [reply = std::move(reply)](const absl::Status& status,
                                   const v1::SpawnProcsResponse& response) mutable {
          SpawnResult result = ResultFromProto(response);
          if (!status.ok()) result.error = ErrorFromStatus(status);
          reply(result);
        });
  }

  void Stop(const StopRequest& request,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<FailureEvent>>)> reply) override {
    v1::StopProcsRequest message;
    message.set_request_id(Id128::Random().ToHex());
    for (const ProcAddress& proc : request.procs) *message.add_procs() = monarch::ToProto(proc);
    message.set_grace_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(request.grace)));
    message.set_kill_after_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(request.kill_after)));
    message.set_reason(request.reason);
    Start<v1::StopProcsRequest, v1::StopProcsResponse>(
        &v1::ProcessService::Stub::async_interface::StopProcs, std::move(message),
        request.grace + request.kill_after,
        [reply = std::move(reply)](const absl::Status& status,
                                   const v1::StopProcsResponse& response) mutable {
          if (!status.ok()) return reply(status);
          std::vector<FailureEvent> ends;
          for (const v1::FailureEvent& end : response.ends()) {
            absl::StatusOr<FailureEvent> event = FromProto(end);
            if (!event.ok()) return reply(event.status());
            ends.push_back(*std::move(event));
          }
          reply(std::move(ends));
        });
  }

  void Signal(const std::vector<ProcAddress>& procs, int signal,
              absl::AnyInvocable<void(absl::Status)> reply) override {
    v1::SignalProcsRequest message;
    message.set_request_id(Id128::Random().ToHex());
    for (const ProcAddress& proc : procs) *message.add_procs() = monarch::ToProto(proc);
    message.set_signal(signal);
    Start<v1::SignalProcsRequest, v1::SignalProcsResponse>(
        &v1::ProcessService::Stub::async_interface::SignalProcs, std::move(message), absl::ZeroDuration(),
        [reply = std::move(reply)](const absl::Status& status, const v1::SignalProcsResponse&) mutable {
          reply(status);
        });
  }

  void Shutdown(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                absl::AnyInvocable<void(absl::Status)> reply) override {
    v1::ShutdownHostRequest message;
    message.set_host(ToProtoBytes(host));
    message.set_grace_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(grace)));
    message.set_kill_after_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(kill_after)));
    const absl::Duration ladder =
        (grace > absl::ZeroDuration() ? grace : absl::Milliseconds(Limits().stop_grace_ms)) + kill_after;
    Start<v1::ShutdownHostRequest, v1::ShutdownHostResponse>(
        &v1::ProcessService::Stub::async_interface::ShutdownHost, std::move(message), ladder,
        [reply = std::move(reply)](const absl::Status& status, const v1::ShutdownHostResponse&) mutable {
          reply(status);
        });
  }

 private:
  template <typename Request, typename Response>
  using Method = void (v1::ProcessService::Stub::async_interface::*)(grpc::ClientContext*, const Request*,
                                                                     Response*,
                                                                     std::function<void(grpc::Status)>);

  template <typename Request, typename Response>
  void Start(Method<Request, Response> method, Request request, absl::Duration timeout,
             absl::AnyInvocable<void(const absl::Status&, const Response&)> done) {
    auto call = std::make_shared<Call<Request, Response>>();
    call->request = std::move(request);
    call->done = std::move(done);
    call->context.set_deadline(absl::ToChronoTime(WallTime() + timeout + kMargin));
    AddControlToken(token_, &call->context);
    {
      MutexLock lock(calls_.mu);
      calls_.contexts.insert(&call->context);
    }
    (stub_->async()->*method)(&call->context, &call->request, &call->response,
                              [this, call](const grpc::Status& status) { OnAnswer(call, status); });
  }

  // On a thread of gRPC's.
  template <typename Request, typename Response>
  void OnAnswer(const std::shared_ptr<Call<Request, Response>>& call, const grpc::Status& grpc_status) {
    absl::Status status = FromGrpcStatus(grpc_status);
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the host is gone");
    loop_->Post([call, status] { call->done(status, call->response); });
    MutexLock lock(calls_.mu);
    calls_.contexts.erase(&call->context);
    calls_.ended.NotifyAll();
  }

  EventLoop* const loop_;
  const StartToken token_;
  Calls calls_;
  std::unique_ptr<v1::ProcessService::Stub> stub_;
};

}  // namespace

std::unique_ptr<HostControl> MakeGrpcHostControl(EventLoop* loop, ScopedFd socket, const StartToken& token) {
  return std::make_unique<GrpcHostControl>(loop, std::move(socket), token);
}

}  // namespace monarch
