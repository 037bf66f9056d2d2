#include "daemon/launcher/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";
// Highest CPU number taken; bounds the set's allocation. Linux knows at most 8192.
constexpr int kCpuMax = 8191;
// Fds are first moved above every target, so that placing one cannot overwrite another.
constexpr int kFdTargetMax = 9;
constexpr int kExitNotStarted = 127;

enum Step : int32_t { kSession, kParentDeath, kCgroup, kFds, kLimits, kAffinity, kChdir, kExec, kSteps };
constexpr const char* kStepNames[kSteps] = {"session", "parent death", "cgroup", "fds",
                                            "limits",  "affinity",     "chdir",  "exec"};

struct Outcome {
  int32_t step;
  int32_t error;
};

// All that the child needs, as plain pointers and numbers.
// Threading: confined to the caller; the child has its own copy.
struct Prepared {
  std::vector<std::string> candidates;
  std::vector<const char*> programs;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::vector<ScopedFd> sources;
  std::vector<int> targets;
  std::vector<unsigned char> cpu_set;
  std::vector<ResourceLimit> limits;
  const ChildSpec* spec = nullptr;
  pid_t parent = 0;
  int outcome = -1;
};

std::vector<std::string> Candidates(const ChildSpec& spec) {
  const std::string& program = spec.argv[0];
  if (absl::StrContains(program, "/")) return {program};
  std::string path = kDefaultPath;
  for (const std::string& entry : spec.env) {
    if (absl::StartsWith(entry, "PATH=")) path = entry.substr(5);
  }
  std::vector<std::string> result;
  const std::vector<std::string> directories = absl::StrSplit(path, ':');
  for (const std::string& directory : directories) {
    result.push_back(absl::StrCat(directory.empty() ? "." : directory, "/", program));
  }
  return result;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

absl::Status PrepareCpus(const ChildSpec& spec, Prepared* prepared) {
  if (spec.cpus.empty()) return absl::OkStatus();
  prepared->cpu_set.assign(kCpuMax / 8 + 1, 0);
  for (const int cpu : spec.cpus) {
    // The kernel leaves out silently what the host does not have.
    if (cpu < 0 || cpu > kCpuMax || cpu >= get_nprocs_conf()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no such cpu: ", cpu, "; this host has ", get_nprocs_conf(), ", counted from 0"));
    }
    prepared->cpu_set[static_cast<size_t>(cpu) / 8] |= static_cast<unsigned char>(1 << (cpu % 8));
  }
  return absl::OkStatus();
}

absl::Status PrepareFds(const ChildSpec& spec, Prepared* prepared) {
  for (const ChildSpec::Fd& fd : spec.fds) {
    if (fd.target < 0 || fd.target > kFdTargetMax) {
      return absl::InvalidArgumentError(absl::StrCat("fd target out of range: ", fd.target));
    }
    ScopedFd moved(fcntl(fd.source, F_DUPFD_CLOEXEC, kFdTargetMax + 1));
    if (!moved.valid()) return ErrnoStatus("duplicate fd for a child", errno);
    prepared->sources.push_back(std::move(moved));
    prepared->targets.push_back(fd.target);
  }
  return absl::OkStatus();
}

absl::Status Prepare(const ChildSpec& spec, Prepared* prepared) {
  if (spec.argv.empty() || spec.argv[0].empty()) return absl::InvalidArgumentError("no program named");
  prepared->spec = &spec;
  prepared->candidates = Candidates(spec);
  for (const std::string& candidate : prepared->candidates) prepared->programs.push_back(candidate.c_str());
  prepared->argv = Pointers(spec.argv);
  prepared->envp = Pointers(spec.env);
  prepared->parent = getpid();
  prepared->limits = spec.limits;
  const bool core_given = std::any_of(spec.limits.begin(), spec.limits.end(), [](const ResourceLimit& limit) {
    return limit.resource == RLIMIT_CORE;
  });
  rlimit core{};
  if (!core_given && getrlimit(RLIMIT_CORE, &core) == 0) {
    prepared->limits.push_back({RLIMIT_CORE, 0, core.rlim_max});
  }
  MONARCH_RETURN_IF_ERROR(PrepareCpus(spec, prepared));
  return PrepareFds(spec, prepared);
}

// From here to ChildMain: async-signal-safe calls only.

[[noreturn]] void ChildFail(const Prepared& prepared, Step step, int error) {
  const Outcome outcome{step, error};
  // Fits any pipe at once; nothing could be done about a failure.
  [[maybe_unused]] const ssize_t written = write(prepared.outcome, &outcome, sizeof(outcome));
  _exit(kExitNotStarted);
}

void ChildResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
}

bool ChildEnterCgroup(const char* procs) {
  const int fd = open(procs, O_WRONLY | O_CLOEXEC);  // closed at exec
  return fd >= 0 && write(fd, "0", 1) == 1;
}

void ChildPlaceFds(const Prepared& prepared) {
  for (size_t i = 0; i < prepared.targets.size(); ++i) {
    if (dup2(prepared.sources[i].get(), prepared.targets[i]) < 0) ChildFail(prepared, kFds, errno);
  }
  // Marked rather than closed: the way to tell of a failure must last until exec. Targets were placed without
  // the mark and are unmarked by dup2, the rest below kFdTargetMax is marked one by one.
  for (int fd = 0; fd <= kFdTargetMax; ++fd) {
    bool kept = false;
    for (const int target : prepared.targets) kept = kept || target == fd;
    if (!kept) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  if (syscall(SYS_close_range, kFdTargetMax + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0) return;
  if (errno != ENOSYS && errno != EINVAL) ChildFail(prepared, kFds, errno);
  for (int fd = kFdTargetMax + 1; fd < 65536; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void ChildExec(const Prepared& prepared) {
  int error = ENOENT;
  for (const char* program : prepared.programs) {
    execve(program, prepared.argv.data(), prepared.envp.data());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    error = errno;
    // As execvp does: a file that may not be run does not hide one further down the path.
    if (errno != EACCES) break;
  }
  ChildFail(prepared, kExec, error);
}

[[noreturn]] void ChildMain(const Prepared& prepared) {
  const ChildSpec& spec = *prepared.spec;
  if (setsid() < 0) ChildFail(prepared, kSession, errno);
  if (spec.die_with_parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) ChildFail(prepared, kParentDeath, errno);
    // It died before the line above.
    if (getppid() != prepared.parent) _exit(kExitNotStarted);
  }
  ChildResetSignals();
  if (!spec.cgroup_procs.empty() && !ChildEnterCgroup(spec.cgroup_procs.c_str()) && spec.cgroup_needed) {
    ChildFail(prepared, kCgroup, errno);
  }
  ChildPlaceFds(prepared);
  if (spec.umask) umask(*spec.umask);
  if (!prepared.cpu_set.empty() &&
      sched_setaffinity(0, prepared.cpu_set.size(),
                        reinterpret_cast<const cpu_set_t*>(prepared.cpu_set.data())) != 0) {
    ChildFail(prepared, kAffinity, errno);
  }
  if (!spec.cwd.empty() && chdir(spec.cwd.c_str()) != 0) ChildFail(prepared, kChdir, errno);
  for (const ResourceLimit& limit : prepared.limits) {
    const rlimit wanted{limit.soft, limit.hard};
    if (setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &wanted) != 0) {
      ChildFail(prepared, kLimits, errno);
    }
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ChildExec(prepared);
}

absl::Status Fail(StartFailure* failure, const char* step, int error) {
  *failure = {step, error};
  return ErrnoStatus(step, error);
}

}  // namespace

absl::StatusOr<StartedChild> StartChild(const ChildSpec& spec, StartFailure* failure) {
  Prepared prepared;
  if (absl::Status status = Prepare(spec, &prepared); !status.ok()) {
    *failure = {"prepare", absl::IsInvalidArgument(status) ? EINVAL : EMFILE};
    return status;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Fail(failure, "pipe", errno);
  StartedChild child;
  child.outcome.reset(ends[0]);
  ScopedFd write_end(ends[1]);
  if (write_end.get() <= kFdTargetMax) {
    // Else placing the targets could overwrite it.
    write_end.reset(fcntl(ends[1], F_DUPFD_CLOEXEC, kFdTargetMax + 1));
    if (!write_end.valid()) return Fail(failure, "pipe", errno);
  }
  prepared.outcome = write_end.get();

  // A signal between fork and the reset of handlers would run the parent's handlers in the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  child.pid = fork();
  const int error = errno;
  if (child.pid == 0) ChildMain(prepared);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child.pid < 0) return Fail(failure, "fork", error);

  // Not reaped yet, so the pid is still its.
  child.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.pidfd.valid()) {
    const int pidfd_error = errno;
    kill(child.pid, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED);
    return Fail(failure, "pidfd", pidfd_error);
  }
  return child;
}

std::optional<StartFailure> ReadStartOutcome(int fd) {
  Outcome outcome{};
  ssize_t got;
  do {
    got = read(fd, &outcome, sizeof(outcome));
  } while (got < 0 && errno == EINTR);
  if (got != sizeof(outcome)) return std::nullopt;
  const bool known = outcome.step >= 0 && outcome.step < kSteps;
  return StartFailure{known ? kStepNames[outcome.step] : "start", outcome.error};
}

}  // namespace monarch
