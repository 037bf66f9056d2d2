#include "client/cpp/control/grpc_control_channel.h"

#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status_macros.h"
#include "proto/control_token.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

constexpr absl::Duration kIdle = absl::Seconds(1);
// accepted, launched, connected, ready: the daemon bounds each; this only bounds a daemon that hangs.
constexpr int kSpawnPhases = 4;
// A daemon may end again and again in the middle of a request; where none comes back, opening fails.
constexpr int kAttemptsMax = 8;
constexpr absl::Duration kMargin = absl::Seconds(10);

uint32_t Milliseconds(absl::Duration duration) {
  return static_cast<uint32_t>(absl::ToInt64Milliseconds(duration));
}

v1::ProcessSpec ToProto(const ProcessSpec& spec) {
  v1::ProcessSpec out;
  for (const std::string& arg : spec.argv) out.add_argv(arg);
  for (const std::string& entry : spec.env) out.add_env(entry);
  out.set_cwd(spec.cwd);
  out.set_umask(spec.umask);
  for (const ProcessSpec::Limit& limit : spec.limits) {
    v1::ResourceLimit* entry = out.add_limits();
    entry->set_resource(limit.resource);
    entry->set_soft(limit.soft);
    entry->set_hard(limit.hard);
  }
  for (const uint32_t cpu : spec.cpus) out.add_cpus(cpu);
  out.set_boot(spec.boot);
  out.set_inherit_env(spec.inherit_env);
  out.set_output_tag(spec.output_tag);
  out.set_memory_bytes_max(spec.memory_bytes_max);
  out.set_pids_max(spec.pids_max);
  return out;
}

v1::SpawnProcsRequest ToProto(const SpawnRequest& request) {
  v1::SpawnProcsRequest out;
  out.set_request_id(Id128::Random().ToHex());
  out.set_mesh(request.mesh);
  for (const std::string& label : request.shape.labels()) out.add_labels(label);
  for (const size_t size : request.shape.slice().sizes()) out.add_sizes(size);
  if (request.specs.size() == 1) {
    *out.mutable_spec() = ToProto(request.specs.front());
  } else {
    for (const ProcessSpec& spec : request.specs) *out.add_rank_specs() = ToProto(spec);
  }
  for (const HostId& host : request.hosts) out.add_hosts(ToProtoBytes(host));
  for (const uint32_t rank : request.ranks) out.add_ranks(rank);
  out.set_incarnation(request.incarnation);
  *out.mutable_owner() = ToProto(request.owner);
  out.set_phase_timeout_ms(Milliseconds(request.phase_timeout));
  return out;
}

}  // namespace

GrpcControlChannel::GrpcControlChannel(GrpcConnection::OpenFd open_fd, const StartToken& token)
    : token_(token), connection_(std::move(open_fd), kIdle) {}

absl::Status GrpcControlChannel::Call(absl::Duration timeout, const Rpc& rpc) {
  const auto deadline = absl::ToChronoTime(WallTime() + timeout);
  absl::Status status;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    MONARCH_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, connection_.Acquire());
    {
      const auto stub = v1::ProcessService::NewStub(channel);
      grpc::ClientContext context;
      context.set_deadline(deadline);
      AddControlToken(token_, &context);
      status = FromGrpcStatus(rpc(*stub, context));
    }
    connection_.Release();
    // Without a detail of the daemon's, Unavailable is the connection's.
    if (!absl::IsUnavailable(status) || GetErrorDetail(status).ok()) return status;
    connection_.Drop(channel.get());
  }
  return status;
}

absl::StatusOr<std::vector<SpawnedProc>> GrpcControlChannel::SpawnProcs(const SpawnRequest& request) {
  if (request.specs.empty() || (request.specs.size() != 1 && request.specs.size() != request.count())) {
    return absl::InvalidArgumentError("a spawn takes one process specification, or one for each process");
  }
  const v1::SpawnProcsRequest message = ToProto(request);
  v1::SpawnProcsResponse response;
  const absl::Duration phase = request.phase_timeout > absl::ZeroDuration()
                                   ? request.phase_timeout
                                   : absl::Milliseconds(Limits().spawn_phase_ms);
  MONARCH_RETURN_IF_ERROR(Call(kSpawnPhases * phase + kMargin, [&](auto& stub, auto& context) {
    return stub.SpawnProcs(&context, message, &response);
  }));
  std::vector<SpawnedProc> procs;
  for (const v1::ProcInfo& info : response.procs()) {
    MONARCH_ASSIGN_OR_RETURN(const ProcAddress address, FromProto(info.address()));
    procs.push_back({address, info.pid()});
  }
  if (procs.size() != request.count()) {
    return absl::InternalError("the daemon answered a spawn with another number of processes than asked for");
  }
  return procs;
}

absl::StatusOr<std::vector<FailureEvent>> GrpcControlChannel::StopProcs(const std::vector<ProcAddress>& procs,
                                                                        absl::Duration grace,
                                                                        absl::Duration kill_after,
                                                                        const std::string& reason) {
  v1::StopProcsRequest message;
  message.set_request_id(Id128::Random().ToHex());
  for (const ProcAddress& proc : procs) *message.add_procs() = ToProto(proc);
  message.set_grace_ms(Milliseconds(grace));
  message.set_kill_after_ms(Milliseconds(kill_after));
  message.set_reason(reason);
  v1::StopProcsResponse response;
  const absl::Duration ladder =
      (grace > absl::ZeroDuration() ? grace : absl::Milliseconds(Limits().stop_grace_ms)) + kill_after;
  MONARCH_RETURN_IF_ERROR(Call(ladder + kMargin, [&](auto& stub, auto& context) {
    return stub.StopProcs(&context, message, &response);
  }));
  std::vector<FailureEvent> ends;
  for (const v1::FailureEvent& end : response.ends()) {
    MONARCH_ASSIGN_OR_RETURN(FailureEvent event, FromProto(end));
    ends.push_back(std::move(event));
  }
  return ends;
}

absl::Status GrpcControlChannel::SignalProcs(const std::vector<ProcAddress>& procs, int signal) {
  v1::SignalProcsRequest message;
  message.set_request_id(Id128::Random().ToHex());
  for (const ProcAddress& proc : procs) *message.add_procs() = ToProto(proc);
  message.set_signal(signal);
  v1::SignalProcsResponse response;
  return Call(kMargin,
              [&](auto& stub, auto& context) { return stub.SignalProcs(&context, message, &response); });
}

absl::StatusOr<std::vector<ProcStatus>> GrpcControlChannel::ListProcs() {
  v1::ListProcsResponse response;
  MONARCH_RETURN_IF_ERROR(Call(kMargin, [&](auto& stub, auto& context) {
    return stub.ListProcs(&context, v1::ListProcsRequest(), &response);
  }));
  std::vector<ProcStatus> procs;
  for (const v1::ProcInfo& info : response.procs()) {
    MONARCH_ASSIGN_OR_RETURN(const ProcAddress address, FromProto(info.address()));
    procs.push_back({address, info.rank(), info.pid(), info.mesh(), info.phase(), info.rank_label()});
  }
  return procs;
}

absl::StatusOr<std::vector<ActorActivity>> GrpcControlChannel::ListActivities() {
  v1::ListProcsRequest request;
  request.set_with_activities(true);
  v1::ListProcsResponse response;
  MONARCH_RETURN_IF_ERROR(
      Call(kMargin, [&](auto& stub, auto& context) { return stub.ListProcs(&context, request, &response); }));
  std::vector<ActorActivity> activities;
  for (const v1::ActorActivity& one : response.activities()) {
    MONARCH_ASSIGN_OR_RETURN(const ActorAddress actor, FromProto(one.actor()));
    activities.push_back(
        {actor, one.pid(), one.method(), absl::Milliseconds(one.age_ms()), one.state(), one.wait_channel()});
  }
  return activities;
}

absl::StatusOr<AttachedHost> GrpcControlChannel::AttachHost(const std::string& address,
                                                            absl::Duration timeout) {
  v1::AttachHostRequest message;
  message.set_address(address);
  message.set_timeout_ms(Milliseconds(timeout));
  v1::AttachHostResponse response;
  MONARCH_RETURN_IF_ERROR(Call(timeout + kMargin, [&](auto& stub, auto& context) {
    return stub.AttachHost(&context, message, &response);
  }));
  MONARCH_ASSIGN_OR_RETURN(const Id128 host, Id128FromProtoBytes(response.host()));
  return AttachedHost{HostId(host), response.host_name(), response.address()};
}

absl::Status GrpcControlChannel::ShutdownHost(const HostId& host, absl::Duration grace,
                                              absl::Duration kill_after) {
  v1::ShutdownHostRequest message;
  message.set_host(ToProtoBytes(host));
  message.set_grace_ms(Milliseconds(grace));
  message.set_kill_after_ms(Milliseconds(kill_after));
  v1::ShutdownHostResponse response;
  const absl::Duration ladder =
      (grace > absl::ZeroDuration() ? grace : absl::Milliseconds(Limits().stop_grace_ms)) + kill_after;
  // Longer than the daemon waits for the other one.
  return Call(ladder + 2 * kMargin,
              [&](auto& stub, auto& context) { return stub.ShutdownHost(&context, message, &response); });
}

ControlFailure ControlFailureOf(const absl::Status& status) {
  ControlFailure out;
  const absl::StatusOr<v1::ErrorDetail> detail = GetErrorDetail(status);
  if (!detail.ok()) return out;
  out.limit = detail->limit();
  for (const v1::FailureEvent& failure : detail->failures()) {
    // One that does not parse is left out: the others and the status' text still tell what happened.
    if (absl::StatusOr<FailureEvent> event = FromProto(failure); event.ok())
      out.failures.push_back(*std::move(event));
  }
  return out;
}

std::unique_ptr<ControlChannel> MakeControlChannel(std::function<absl::StatusOr<ScopedFd>()> open_fd,
                                                   const StartToken& token) {
  return std::make_unique<GrpcControlChannel>(std::move(open_fd), token);
}

}  // namespace monarch
