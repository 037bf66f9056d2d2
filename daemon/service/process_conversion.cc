#include "daemon/service/process_conversion.h"

#include <sched.h>

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/large_body.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

constexpr size_t kBootBytesMax = 1024 * 1024;
constexpr size_t kOutputTagBytesMax = 32;
// Of a launch message beside its strings: the numbers, the label, the keys.
constexpr size_t kLaunchOtherBytesMax = 256 * 1024;
constexpr size_t kEntryHeadBytes = 5;
// A daemon adds to a client's id what it sends on.
constexpr size_t kRequestIdBytesMax = 160;
constexpr size_t kMeshBytesMax = 256;
constexpr int kResourceMax = 16;  // RLIM_NLIMITS
// A peer refuses more than 8 KiB of metadata by default, in which the message and these details must find
// room, the message percent-encoded.
constexpr size_t kDetailBytesMax = 3 * 1024;
constexpr size_t kMessageBytesMax = 1800;

bool HasNul(const std::string& text) { return text.find('\0') != std::string::npos; }

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("spawn: ", what));
}

// A launch that no message can carry is refused before anything starts.
absl::Status CheckLaunchBytes(const v1::ProcessSpec& in) {
  size_t bytes = in.cwd().size() + in.boot().size();
  for (const std::string& item : in.argv()) bytes += item.size() + kEntryHeadBytes;
  for (const std::string& item : in.env()) bytes += item.size() + kEntryHeadBytes;
  constexpr size_t kMax = kLargeBodyBytesMax - kLaunchOtherBytesMax;
  if (bytes <= kMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("spawn: argv, env, cwd and boot take ", bytes, " bytes, launch_bytes_max=", kMax));
}

absl::StatusOr<ProcessSpec> SpecFromProto(const v1::ProcessSpec& in) {
  ProcessSpec spec;
  MONARCH_RETURN_IF_ERROR(CheckLaunchBytes(in));
  if (in.argv().empty() || in.argv(0).empty()) return Bad("argv is empty");
  for (const std::string& item : in.argv()) {
    if (HasNul(item)) return Bad("an argument holds a zero byte");
    spec.argv.push_back(item);
  }
  for (const std::string& item : in.env()) {
    if (HasNul(item) || item.find('=') == std::string::npos || item[0] == '=')
      return Bad("env has an entry that is not K=V");
    spec.env.push_back(item);
  }
  if (HasNul(in.cwd())) return Bad("cwd holds a zero byte");
  spec.cwd = in.cwd();
  if (in.umask() > 0777) return Bad(absl::StrCat("umask ", in.umask(), " is beyond 0777"));
  spec.umask = in.umask();
  for (const v1::ResourceLimit& limit : in.limits()) {
    if (limit.resource() < 0 || limit.resource() >= kResourceMax)
      return Bad(absl::StrCat("no resource limit has number ", limit.resource()));
    // The bit pattern: UINT64_MAX stands for unlimited on both sides.
    spec.rlimits.push_back(
        {limit.resource(), static_cast<int64_t>(limit.soft()), static_cast<int64_t>(limit.hard())});
  }
  for (const uint32_t cpu : in.cpus()) {
    if (cpu >= CPU_SETSIZE) return Bad(absl::StrCat("cpu ", cpu, " is out of range"));
    spec.cpus.push_back(cpu);
  }
  if (in.boot().size() > kBootBytesMax)
    return Bad(absl::StrCat("boot has ", in.boot().size(), " bytes, at most ", kBootBytesMax));
  spec.boot = in.boot();
  spec.inherit_env = in.inherit_env();
  if (in.output_tag().size() > kOutputTagBytesMax ||
      !std::all_of(in.output_tag().begin(), in.output_tag().end(),
                   [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); })) {
    return Bad("output_tag takes at most 32 letters and digits");
  }
  spec.output_tag = in.output_tag();
  if (in.memory_bytes_max() < 0 || in.pids_max() < 0) return Bad("memory_bytes_max or pids_max is negative");
  spec.memory_bytes_max = in.memory_bytes_max();
  spec.pids_max = in.pids_max();
  return spec;
}

absl::StatusOr<Shape> ShapeFromProto(const v1::SpawnProcsRequest& in, const Limits& limits) {
  if (in.labels_size() != in.sizes_size()) return Bad("as many labels as sizes are wanted");
  if (in.sizes_size() > limits.mesh_dims_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("spawn: ", in.sizes_size(), " dimensions, mesh_dims_max=", limits.mesh_dims_max));
  }
  std::vector<size_t> sizes(in.sizes().begin(), in.sizes().end());
  absl::StatusOr<NDSlice> slice = NDSlice::RowMajor(std::move(sizes));
  if (!slice.ok()) return Bad(std::string(slice.status().message()));
  return Shape::Create(std::vector<std::string>(in.labels().begin(), in.labels().end()), *std::move(slice));
}

absl::Status PlacesFromProto(const v1::SpawnProcsRequest& in, SpawnRequest* out) {
  const size_t ranks = out->shape.size();
  out->ranks.assign(in.ranks().begin(), in.ranks().end());
  if (!in.hosts().empty() && static_cast<size_t>(in.hosts_size()) != out->count())
    return Bad(absl::StrCat(in.hosts_size(), " hosts for ", out->count(), " processes"));
  for (const std::string& host : in.hosts()) {
    MONARCH_ASSIGN_OR_RETURN(const Id128 id, Id128FromProtoBytes(host));
    out->hosts.push_back(HostId(id));
  }
  for (size_t i = 0; i < out->ranks.size(); ++i) {
    if (out->ranks[i] >= ranks || (i > 0 && out->ranks[i] <= out->ranks[i - 1]))
      return Bad("ranks must be ascending, and of the mesh");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SpawnRequest> FromProto(const v1::SpawnProcsRequest& in, const Limits& limits) {
  SpawnRequest out;
  if (in.request_id().empty() || in.request_id().size() > kRequestIdBytesMax)
    return Bad("request_id must have 1 to 160 bytes");
  if (in.mesh().size() > kMeshBytesMax) return Bad("the mesh's name is longer than 256 bytes");
  out.request_id = in.request_id();
  out.mesh = in.mesh();
  MONARCH_ASSIGN_OR_RETURN(out.shape, ShapeFromProto(in, limits));
  MONARCH_RETURN_IF_ERROR(PlacesFromProto(in, &out));
  if (in.rank_specs().empty()) {
    MONARCH_ASSIGN_OR_RETURN(ProcessSpec spec, SpecFromProto(in.spec()));
    out.specs.push_back(std::move(spec));
  } else {
    if (static_cast<size_t>(in.rank_specs_size()) != out.count()) {
      return Bad(absl::StrCat(in.rank_specs_size(), " rank_specs for ", out.count(), " processes"));
    }
    for (const v1::ProcessSpec& rank : in.rank_specs()) {
      MONARCH_ASSIGN_OR_RETURN(ProcessSpec spec, SpecFromProto(rank));
      out.specs.push_back(std::move(spec));
    }
  }
  out.incarnation = std::max(in.incarnation(), 1u);
  if (in.has_owner()) {
    MONARCH_ASSIGN_OR_RETURN(out.owner, FromProto(in.owner()));
  }
  out.phase_timeout = absl::Milliseconds(in.phase_timeout_ms());
  return out;
}

absl::StatusOr<std::vector<ProcAddress>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::ProcAddress>& procs) {
  std::vector<ProcAddress> out;
  for (const v1::ProcAddress& proc : procs) {
    MONARCH_ASSIGN_OR_RETURN(const ProcAddress address, FromProto(proc));
    out.push_back(address);
  }
  return out;
}

v1::Hang HangToProto(const EventLog::Entry& entry) {
  v1::Hang out;
  out.set_method(entry.hang->method);
  out.set_age_ms(absl::ToInt64Milliseconds(entry.hang->age));
  out.set_state(entry.hang->state);
  out.set_wait_channel(entry.hang->wait_channel);
  const absl::Duration took = entry.hang->recovered ? entry.hang->age : entry.recovered_after;
  out.set_recovered(took > absl::ZeroDuration());
  out.set_took_ms(absl::ToInt64Milliseconds(took));
  return out;
}

v1::ActorActivity ToProto(const ActorActivity& activity) {
  v1::ActorActivity out;
  *out.mutable_actor() = ToProto(activity.actor);
  out.set_pid(activity.pid);
  out.set_method(activity.method);
  out.set_age_ms(absl::ToInt64Milliseconds(activity.age));
  out.set_state(ActivityStateName(activity.state));
  out.set_wait_channel(activity.wait_channel);
  out.set_hung(activity.hung);
  return out;
}

v1::ProcInfo ToProto(const ProcDescription& proc) {
  v1::ProcInfo out;
  *out.mutable_address() = ToProto(proc.address);
  out.set_rank(proc.rank);
  out.set_pid(proc.pid);
  out.set_mesh(proc.mesh);
  out.set_phase(ProcPhaseName(proc.phase));
  out.set_rank_label(proc.rank_label);
  return out;
}

v1::SpawnProcsRequest ToProto(const SpawnRequest& request) {
  v1::SpawnProcsRequest out;
  out.set_request_id(request.request_id);
  out.set_mesh(request.mesh);
  for (const std::string& label : request.shape.labels()) out.add_labels(label);
  for (const size_t size : request.shape.slice().sizes()) out.add_sizes(size);
  for (const HostId& host : request.hosts) out.add_hosts(ToProtoBytes(host));
  for (const uint32_t rank : request.ranks) out.add_ranks(rank);
  for (const ProcessSpec& spec : request.specs) {
    v1::ProcessSpec* added = request.specs.size() == 1 ? out.mutable_spec() : out.add_rank_specs();
    for (const std::string& arg : spec.argv) added->add_argv(arg);
    for (const std::string& entry : spec.env) added->add_env(entry);
    added->set_cwd(spec.cwd);
    added->set_umask(spec.umask);
    for (const auto& [resource, soft, hard] : spec.rlimits) {
      v1::ResourceLimit* limit = added->add_limits();
      limit->set_resource(static_cast<int32_t>(resource));
      limit->set_soft(static_cast<uint64_t>(soft));
      limit->set_hard(static_cast<uint64_t>(hard));
    }
    for (const uint32_t cpu : spec.cpus) added->add_cpus(cpu);
    added->set_boot(spec.boot);
    added->set_inherit_env(spec.inherit_env);
    added->set_memory_bytes_max(spec.memory_bytes_max);
    added->set_pids_max(spec.pids_max);
  }
  out.set_incarnation(request.incarnation);
  *out.mutable_owner() = ToProto(request.owner);
  out.set_phase_timeout_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(request.phase_timeout)));
  return out;
}

SpawnResult ResultFromProto(const v1::SpawnProcsResponse& response) {
  SpawnResult result;
  for (const v1::ProcInfo& info : response.procs()) {
    const absl::StatusOr<ProcAddress> address = FromProto(info.address());
    if (!address.ok()) {
      result.error.status = address.status();
      return result;
    }
    ProcDescription proc;
    proc.address = *address;
    proc.rank = info.rank();
    proc.pid = info.pid();
    proc.mesh = info.mesh();
    proc.phase = ProcPhase::kReady;
    proc.rank_label = info.rank_label();
    result.procs.push_back(std::move(proc));
  }
  return result;
}

RequestError ErrorFromStatus(const absl::Status& status) {
  RequestError error;
  error.status = absl::Status(status.code(), status.message());
  const absl::StatusOr<v1::ErrorDetail> detail = GetErrorDetail(status);
  if (!detail.ok()) return error;
  error.limit = detail->limit();
  error.limit_value = detail->limit_value();
  error.asked = detail->asked();
  for (const v1::FailureEvent& failure : detail->failures()) {
    absl::StatusOr<FailureEvent> event = FromProto(failure);
    if (event.ok()) error.failures.push_back(*std::move(event));
  }
  return error;
}

absl::Status ToStatus(const RequestError& error) {
  if (error.status.ok()) return absl::OkStatus();
  absl::Status status(error.status.code(), std::string(error.status.message()).substr(0, kMessageBytesMax));
  if (error.limit.empty() && error.failures.empty()) return status;
  v1::ErrorDetail detail;
  detail.set_limit(error.limit);
  detail.set_limit_value(error.limit_value);
  detail.set_asked(error.asked);
  for (const FailureEvent& failure : error.failures) {
    v1::FailureEvent* added = detail.add_failures();
    *added = ToProto(failure);
    const size_t before = detail.ByteSizeLong() - failure.stderr_tail.size();
    if (before > kDetailBytesMax) {
      detail.mutable_failures()->RemoveLast();
      break;
    }
    const size_t room = kDetailBytesMax - before;
    if (failure.stderr_tail.size() > room) {
      added->set_stderr_tail(failure.stderr_tail.substr(failure.stderr_tail.size() - room));
    }
  }
  SetErrorDetail(detail, &status);
  return status;
}

}  // namespace monarch
