#include "daemon/service/process_service.h"

#include <signal.h>

#include <utility>

#include "daemon/service/process_conversion.h"
#include "daemon/service/unary_answer.h"
#include "daemon/session_activities.h"
#include "message/utf8.h"
#include "proto/control_token.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

absl::Status SessionOver() {
  return absl::FailedPreconditionError("the session of this connection has ended");
}

}  // namespace

std::optional<ControlPeer> ProcessService::FindPeer(const grpc::CallbackServerContext& context) const {
  const auto found = context.client_metadata().find(kControlTokenKey);
  if (found == context.client_metadata().end()) return std::nullopt;
  const auto token = Id128::FromHex(std::string_view(found->second.data(), found->second.size()));
  return token.ok() ? context_->control_peers->Find(StartToken(*token)) : std::nullopt;
}

absl::StatusOr<ControlPeer> ProcessService::SessionPeer(const grpc::CallbackServerContext& context) const {
  const std::optional<ControlPeer> peer = FindPeer(context);
  if (!peer) {
    return absl::PermissionDeniedError("this request is of no process of a session: it may only list");
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
    Session* session = sessions->Find(peer.session);
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
                   absl::Milliseconds(request->kill_after_ms()), ToUtf8(request->reason().substr(0, 1024))};
  context_->loop->Post([sessions = sessions_, peer = *peer, stop = std::move(stop), response,
                        answer = std::move(answer)]() mutable {
    Session* session = sessions->Find(peer.session);
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
    Session* session = sessions->Find(peer.session);
    if (session == nullptr) return answer.Finish(SessionOver());
    session->Signal(procs, signal, [answer = std::move(answer)](const absl::Status& status) mutable {
      answer.Finish(status);
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::ListProcs(grpc::CallbackServerContext* context,
                                                    const v1::ListProcsRequest* request,
                                                    v1::ListProcsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_->loop->Post([loop = context_->loop, sessions = sessions_, peer = FindPeer(*context),
                        with_activities = request->with_activities(), response,
                        answer = UnaryAnswer(reactor)]() mutable {
    std::vector<SessionId> listed;
    for (const auto& [id, session] : sessions->sessions()) {
      if (peer && peer->session != id) continue;
      if (with_activities) listed.push_back(id);
      for (const auto& [proc, record] : session->procs().all()) {
        if (!record.is_client) *response->add_procs() = ToProto(record.description);
      }
      for (const ProcDescription& proc : session->RemoteProcs()) *response->add_procs() = ToProto(proc);
    }
    ListActivities(loop, sessions, listed,
                   [response, answer = std::move(answer)](const std::vector<ActorActivity>& found) mutable {
                     for (const ActorActivity& one : found) *response->add_activities() = ToProto(one);
                     answer.Finish(absl::OkStatus());
                   });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::AttachHost(grpc::CallbackServerContext* context,
                                                     const v1::AttachHostRequest* request,
                                                     v1::AttachHostResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryAnswer answer(reactor);
  const absl::StatusOr<ControlPeer> peer = SessionPeer(*context);
  if (!peer.ok()) {
    answer.Finish(peer.status());
    return reactor;
  }
  context_->loop->Post([sessions = sessions_, peer = *peer, address = request->address(),
                        timeout = absl::Milliseconds(request->timeout_ms()), response,
                        answer = std::move(answer)]() mutable {
    Session* session = sessions->Find(peer.session);
    if (session == nullptr) return answer.Finish(SessionOver());
    session->AttachHost(
        address, timeout,
        [timeout, response, answer = std::move(answer)](const absl::StatusOr<AttachedHost>& host) mutable {
          absl::Status status = host.status();
          if (host.ok()) {
            response->set_host(ToProtoBytes(host->host));
            response->set_host_name(host->name);
            response->set_address(host->address);
          } else {
            // By its detail the client knows that the refusal is not of its own connection.
            v1::ErrorDetail detail;
            detail.set_asked(static_cast<uint64_t>(absl::ToInt64Milliseconds(timeout)) + 1);
            SetErrorDetail(detail, &status);
          }
          answer.Finish(status);
        });
  });
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::ShutdownHost(grpc::CallbackServerContext* context,
                                                       const v1::ShutdownHostRequest* request,
                                                       v1::ShutdownHostResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryAnswer answer(reactor);
  const absl::StatusOr<ControlPeer> peer = SessionPeer(*context);
  const absl::StatusOr<Id128> host = Id128FromProtoBytes(request->host());
  if (!peer.ok() || !host.ok()) {
    answer.Finish(peer.ok() ? host.status() : peer.status());
    return reactor;
  }
  context_->loop->Post([sessions = sessions_, peer = *peer, host = HostId(*host),
                        grace = absl::Milliseconds(request->grace_ms()),
                        kill_after = absl::Milliseconds(request->kill_after_ms()),
                        answer = std::move(answer)]() mutable {
    Session* session = sessions->Find(peer.session);
    if (session == nullptr) return answer.Finish(SessionOver());
    session->ShutdownHost(
        host, grace, kill_after,
        [answer = std::move(answer)](const absl::Status& status) mutable { answer.Finish(status); });
  });
  return reactor;
}

}  // namespace monarch
