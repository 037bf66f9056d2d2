#include "daemon/service/admin_service.h"

#include <unistd.h>

#include <map>
#include <string>

#include "base/version.h"
#include "daemon/service/failure_keeper.h"
#include "daemon/service/limit_uses.h"
#include "daemon/service/process_conversion.h"
#include "daemon/service/unary_answer.h"
#include "daemon/session_activities.h"
#include "message/mesh_restarts.h"
#include "message/utf8.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"

namespace monarch {
namespace {

constexpr absl::Duration kGraceMax = absl::Minutes(10);
constexpr size_t kNameBytesMax = 256;

void FillStatus(const DaemonContext& context, const SessionManager& sessions, v1::GetStatusResponse* out) {
  uint64_t actors = 0;
  for (const auto& [id, session] : sessions.sessions()) {
    actors += session->actors().size();
  }
  out->set_host(ToProtoBytes(context.host));
  out->set_host_name(context.host_name);
  out->set_version(kVersion);
  out->set_pid(getpid());
  out->set_uptime_ms(absl::ToInt64Milliseconds(context.loop->Now() - context.started));
  out->set_is_private(context.is_private);
  out->set_sessions(static_cast<uint32_t>(sessions.sessions().size()));
  out->set_procs(static_cast<uint32_t>(context.workers));
  out->set_actors(static_cast<uint32_t>(actors));
  const std::map<std::string, uint64_t> uses = LimitUses(context, sessions);
  for (const LimitEntry& entry : LimitTable(context.limits)) {
    v1::LimitUse* limit = out->add_limits();
    limit->set_name(std::string(entry.name));
    limit->set_what(std::string(entry.what));
    limit->set_value(static_cast<uint64_t>(entry.value));
    if (const auto used = uses.find(limit->name()); used != uses.end()) limit->set_used(used->second);
  }
  const OpenFiles files = CountOpenFiles();
  v1::LimitUse* limit = out->add_limits();
  limit->set_name("open_files");
  limit->set_what("open files of this daemon (ulimit -n)");
  limit->set_value(files.most);
  limit->set_used(files.used);
}

void FillRestarts(const MeshRestarts& restarts, v1::MeshRestarts* out) {
  out->set_mesh(restarts.mesh);
  out->set_of_procs(restarts.of_procs);
  out->set_policy(restarts.policy);
  out->set_incarnation(restarts.incarnation);
  out->set_restarts(restarts.restarts);
  out->set_given_up(restarts.given_up);
  if (restarts.cause.has_value()) *out->mutable_cause() = ToProto(*restarts.cause);
}

void FillSession(const DaemonContext& context, const Session& session, v1::SessionInfo* out) {
  out->set_session(session.id().ToHex());
  out->set_name(session.name());
  out->set_client_pid(session.client_pid());
  out->set_uid(session.uid());
  out->set_launcher_pid(session.launcher_pid());
  out->set_age_ms(absl::ToInt64Milliseconds(context.loop->Now() - session.started()));
  *out->mutable_client() = ToProto(session.client_address());
  out->set_state(session.is_ending() ? "ending" : "running");
  out->set_guest(session.is_guest());
  for (const auto& [proc, record] : session.procs().all()) {
    if (!record.is_client) *out->add_procs() = ToProto(record.description);
  }
  for (const auto& [address, actor] : session.actors()) {
    v1::ActorInfo* info = out->add_actors();
    *info->mutable_address() = ToProto(address);
    info->set_name(actor.name);
    info->set_actor_class(actor.actor_class);
    info->set_mesh(actor.mesh);
    info->set_rank(actor.rank);
    info->set_rank_label(actor.rank_label);
    *info->mutable_owner() = ToProto(actor.owner);
    info->set_state(actor.failed ? "failed" : "running");
    info->set_incarnation(actor.incarnation);
    if (actor.restarts.has_value()) FillRestarts(*actor.restarts, info->mutable_restarts());
  }
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const v1::GetStatusRequest*,
                                                  v1::GetStatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_->loop->Post([this, response, answer = UnaryAnswer(reactor)]() mutable {
    FillStatus(*context_, *sessions_, response);
    answer.Finish(absl::OkStatus());
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetTree(grpc::CallbackServerContext* context,
                                                const v1::GetTreeRequest*, v1::GetTreeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_->loop->Post([this, response, answer = UnaryAnswer(reactor)]() mutable {
    std::vector<SessionId> listed;
    for (const auto& [id, session] : sessions_->sessions()) {
      FillSession(*context_, *session, response->add_sessions());
      listed.push_back(id);
    }
    ListActivities(context_->loop, sessions_, listed,
                   [response, answer = std::move(answer)](const std::vector<ActorActivity>& found) mutable {
                     for (const ActorActivity& one : found) *response->add_activities() = ToProto(one);
                     answer.Finish(absl::OkStatus());
                   });
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetFailures(grpc::CallbackServerContext* context,
                                                    const v1::GetFailuresRequest*,
                                                    v1::GetFailuresResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_->loop->Post([this, response, answer = UnaryAnswer(reactor)]() mutable {
    *response = FailuresOf(*context_->events);
    answer.Finish(absl::OkStatus());
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::StopSession(grpc::CallbackServerContext* context,
                                                    const v1::StopSessionRequest* request,
                                                    v1::StopSessionResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  UnaryAnswer answer(reactor);
  const absl::StatusOr<Id128> id = Id128::FromHex(request->session());
  if (!id.ok() || request->grace_ms() < 0 || absl::Milliseconds(request->grace_ms()) > kGraceMax) {
    answer.Finish(absl::InvalidArgumentError(
        "stop session: wanted are 32 hex digits and a grace of at most 600000 ms"));
    return reactor;
  }
  const int64_t grace_ms = request->grace_ms() == 0 ? context_->limits.stop_grace_ms : request->grace_ms();
  const std::string reason =
      absl::StrCat("stopped by ", ToUtf8(request->asked_by().substr(0, kNameBytesMax)));
  context_->loop->Post([this, session = SessionId(*id), grace = absl::Milliseconds(grace_ms), reason,
                        response, answer = std::move(answer)]() mutable {
    sessions_->Stop(session, reason, grace,
                    [response, answer = std::move(answer)](
                        const absl::StatusOr<std::vector<FailureEvent>>& ends) mutable {
                      if (ends.ok()) {
                        for (const FailureEvent& end : *ends) *response->add_ends() = ToProto(end);
                      }
                      answer.Finish(ends.status());
                    });
  });
  return reactor;
}

}  // namespace monarch
