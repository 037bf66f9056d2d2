#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "client/cpp/actor_strand.h"
#include "client/cpp/control/control_channel.h"
#include "client/cpp/session.h"
#include "client/cpp/worker_flag.h"
#include "monarch/mesh.h"

extern char** environ;

namespace monarch {
namespace {

absl::StatusOr<Shape> ShapeOfDims(const Dims& dims) {
  std::vector<std::string> labels;
  std::vector<size_t> sizes;
  for (const auto& [label, size] : dims) {
    labels.push_back(label);
    sizes.push_back(size);
  }
  MONARCH_ASSIGN_OR_RETURN(NDSlice slice, NDSlice::RowMajor(std::move(sizes)));
  return Shape::Create(std::move(labels), std::move(slice));
}

// This process's environment with `changes` over it.
std::vector<std::string> Environment(const std::vector<std::string>& changes) {
  std::map<std::string, std::string> merged;
  const auto add = [&merged](const std::string& entry) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) merged[entry.substr(0, equals)] = entry;
  };
  for (char** entry = environ; *entry != nullptr; ++entry) add(*entry);
  for (const std::string& entry : changes) add(entry);
  std::vector<std::string> out;
  out.reserve(merged.size());
  for (auto& [name, entry] : merged) out.push_back(std::move(entry));
  return out;
}

absl::StatusOr<std::string> OwnProgram() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == static_cast<ssize_t>(sizeof path)) {
    return absl::InternalError("cannot read /proc/self/exe, so workers cannot run this program");
  }
  return std::string(path, static_cast<size_t>(length));
}

absl::StatusOr<std::string> WorkingDirectory() {
  char path[4096];
  if (getcwd(path, sizeof path) == nullptr) {
    return absl::FailedPreconditionError("the working directory is gone; workers start in it");
  }
  return std::string(path);
}

// umask() can read the mask only by setting it, for all threads.
uint32_t CurrentUmask() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Umask:", 0) == 0) return static_cast<uint32_t>(std::strtoul(&line[6], nullptr, 8));
  }
  return 022;
}

// Workers get this process's limits, not the daemon's. Of core files the launcher decides.
std::vector<ProcessSpec::Limit> CurrentLimits() {
  std::vector<ProcessSpec::Limit> limits;
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit = {};
    if (resource == RLIMIT_CORE || getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0)
      continue;
    limits.push_back({resource, limit.rlim_cur, limit.rlim_max});
  }
  return limits;
}

// Empty, for the launcher's, where there are more of them than the set holds.
std::vector<uint32_t> CurrentCpus() {
  std::vector<uint32_t> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

absl::StatusOr<ProcessSpec> OwnProcessSpec(const SpawnOptions& options) {
  ProcessSpec spec;
  MONARCH_ASSIGN_OR_RETURN(std::string program, OwnProgram());
  MONARCH_ASSIGN_OR_RETURN(spec.cwd, WorkingDirectory());
  spec.argv = {std::move(program), std::string(kWorkerFlag)};
  spec.env = Environment(options.env);
  spec.umask = CurrentUmask();
  spec.limits = CurrentLimits();
  spec.cpus = CurrentCpus();
  spec.memory_bytes_max = options.memory_bytes_max;
  spec.pids_max = options.pids_max;
  return spec;
}

}  // namespace

absl::StatusOr<ProcMesh> HostMesh::SpawnProcs(const Dims& per_host, const SpawnOptions& options) const {
  auto core = std::make_shared<internal::ProcMeshCore>();
  core->session = session_;
  core->name = options.name;
  MONARCH_ASSIGN_OR_RETURN(core->shape, ShapeOfDims(per_host));

  SpawnRequest request;
  request.mesh = options.name;
  request.shape = core->shape;
  MONARCH_ASSIGN_OR_RETURN(ProcessSpec spec, OwnProcessSpec(options));
  request.specs.push_back(std::move(spec));
  request.owner = {session_->runtime()->self(), CurrentActor()};
  request.phase_timeout = options.phase_timeout;
  MONARCH_ASSIGN_OR_RETURN(const std::vector<SpawnedProc> spawned, session_->control().SpawnProcs(request));
  for (const SpawnedProc& proc : spawned) {
    core->procs.push_back(proc.address);
    core->pids.push_back(proc.pid);
  }
  session_->runtime()->AddOwnedMesh({CurrentActor(), core->name, "", 0, core->procs, core->shape});
  Shape shape = core->shape;
  return ProcMesh(std::move(core), std::move(shape));
}

absl::Status ProcMesh::Stop(absl::Duration grace) const {
  std::vector<ProcAddress> procs;
  for (const size_t rank : shape_.slice().Ranks()) procs.push_back(core_->procs.at(rank));
  // The others of the mesh go on, with their owner.
  if (size() == core_->procs.size()) {
    core_->session->runtime()->RemoveOwnedProcMesh(CurrentActor(), core_->procs);
  }
  return core_->session->control().StopProcs(procs, grace, absl::Seconds(1), "stopped by client").status();
}

}  // namespace monarch
