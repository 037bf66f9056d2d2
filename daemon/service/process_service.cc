#include "daemon/service/process_service.h"

#include <signal.h>

#include <utility>

#include "daemon/service/process_conversion.h"
#include "daemon/service/unary_answer.h"
#include "proto/failure_event_conversion.h"

namespace monarch {
namespace {

absl::Status SessionOver() {
  return absl::FailedPreconditionError("the session of this connection has ended");
}

}  // namespace

absl::StatusOr<ControlPeer> ProcessService::SessionPeer(const grpc::CallbackServerContext& context) const {
  const std::optional<ControlPeer> peer = peers_->Find(context.peer());
  if (!peer || !peer->session) {
    return absl::PermissionDeniedError("this connection belongs to no session: it may only list");
  }
  return *peer;
}

grpc::ServerUnaryReactor* ProcessService::SpawnProcs(grpc::CallbackServerContext* context,
                                                     const v1::SpawnProcsRequest* request,
                                                     v1::SpawnProcsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryAnswer answer(reactor);
  const absl::StatusOr<ControlPeer> peer = SessionPeer(*context);
  absl::StatusOr<SpawnRequest> spawn = FromProto(*request, context_->limits);
  if (!peer.ok() || !spawn.ok()) {
    answer.Finish(peer.ok() ? spawn.status() : peer.status());
    return reactor;
  }
  context_->loop->Post([sessions = sessions_, peer = *peer, spawn = *std::move(spawn), response,
                        answer = std::move(answer)]() mutable {
    Session* session = sessions->Find(*peer.session);
    if (session == nullptr) return answer.Finish(SessionOver());
    session->Spawn(std::move(spawn), peer.asker,
                   [response, answer = std::move(answer)](const SpawnResult& result) mutable {
                     for (const ProcDescription& proc : result.procs) *response->add_procs() = ToProto(proc);
                     answer.Finish(ToStatus(result.error));
                   });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::StopProcs(grpc::CallbackServerContext* context,
                                                    const v1::StopProcsRequest* request,
                                                    v1::StopProcsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryAnswer answer(reactor);
  const absl::StatusOr<ControlPeer> peer = SessionPeer(*context);
  absl::StatusOr<std::vector<ProcAddress>> procs = FromProto(request->procs());
  if (!peer.ok() || !procs.ok()) {
    answer.Finish(peer.ok() ? procs.status() : peer.status());
    return reactor;
  }
  StopRequest stop{*std::move(procs), absl::Milliseconds(request->grace_ms()),
                   absl::Milliseconds(request->kill_after_ms()), request->reason().substr(0, 1024)};
  context_->loop->Post([sessions = sessions_, peer = *peer, stop = std::move(stop), response,
                        answer = std::move(answer)]() mutable {
    Session* session = sessions->Find(*peer.session);
    if (session == nullptr) return answer.Finish(SessionOver());
    session->Stop(stop, [response, answer = std::move(answer)](std::vector<FailureEvent> ends) mutable {
      for (const FailureEvent& end : ends) *response->add_ends() = ToProto(end);
      answer.Finish(absl::OkStatus());
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::SignalProcs(grpc::CallbackServerContext* context,
                                                      const v1::SignalProcsRequest* request,
                                                      v1::SignalProcsResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryAnswer answer(reactor);
  const absl::StatusOr<ControlPeer> peer = SessionPeer(*context);
  absl::StatusOr<std::vector<ProcAddress>> procs = FromProto(request->procs());
  if (peer.ok() && procs.ok() && (request->signal() <= 0 || request->signal() >= NSIG)) {
    procs = absl::InvalidArgumentError("signal: no such signal");
  }
  if (!peer.ok() || !procs.ok()) {
    answer.Finish(peer.ok() ? procs.status() : peer.status());
    return reactor;
  }
  context_->loop->Post([sessions = sessions_, peer = *peer, procs = *std::move(procs),
                        signal = request->signal(), answer = std::move(answer)]() mutable {
    Session* session = sessions->Find(*peer.session);
    answer.Finish(session == nullptr ? SessionOver() : session->Signal(procs, signal));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::ListProcs(grpc::CallbackServerContext* context,
                                                    const v1::ListProcsRequest*,
                                                    v1::ListProcsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_->loop->Post([sessions = sessions_, peer = peers_->Find(context->peer()), response,
                        answer = UnaryAnswer(reactor)]() mutable {
    for (const auto& [id, session] : sessions->sessions()) {
      if (peer && peer->session && *peer->session != id) continue;
      for (const auto& [proc, record] : session->procs().all()) {
        if (!record.is_client) *response->add_procs() = ToProto(record.description);
      }
    }
    answer.Finish(absl::OkStatus());
  });
  return reactor;
}

}  // namespace monarch
