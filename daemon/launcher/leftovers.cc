#include "daemon/launcher/leftovers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/pidfd.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

// Bounds what one process can make us read; an environment is at most a quarter of the stack limit.
constexpr size_t kEnvironBytesMax = 4 * 1024 * 1024;

}  // namespace

bool IsDead(const ProcessStat& process) { return process.state == 'Z' || process.state == 'X'; }

std::string SessionMark(std::string_view session_hex) {
  return absl::StrCat("MONARCH_SESSION=", std::string(session_hex));
}

std::string ProcMark(const ProcAddress& proc) {
  return absl::StrCat(kProcMarkStart, proc.proc, ".", proc.incarnation);
}

std::vector<pid_t> DescendantsOf(pid_t ancestor, const std::vector<ProcessStat>& processes) {
  std::unordered_map<pid_t, std::vector<const ProcessStat*>> children;
  for (const ProcessStat& process : processes) children[process.parent].push_back(&process);
  std::vector<pid_t> result;
  std::vector<pid_t> open = {ancestor};
  // A list read while processes end and numbers return may hold a circle.
  std::unordered_set<pid_t> seen = {ancestor};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    for (const ProcessStat* child : children[parent]) {
      if (!seen.insert(child->pid).second) continue;
      open.push_back(child->pid);
      if (!IsDead(*child)) result.push_back(child->pid);
    }
  }
  return result;
}

std::vector<pid_t> DeadChildrenOf(pid_t parent, const std::vector<ProcessStat>& processes) {
  std::vector<pid_t> result;
  for (const ProcessStat& process : processes) {
    if (process.parent == parent && IsDead(process)) result.push_back(process.pid);
  }
  return result;
}

std::optional<std::string> ReadEnvironment(pid_t pid) {
  const std::string directory = absl::StrCat("/proc/", pid);
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0 || info.st_uid != geteuid()) return std::string();
  const ScopedFd fd(open(absl::StrCat(directory, "/environ").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::string();
  std::string environment(1, '\0');
  char buffer[16 * 1024];
  ssize_t got;
  while (environment.size() < kEnvironBytesMax && (got = read(fd.get(), buffer, sizeof(buffer))) > 0) {
    environment.append(buffer, static_cast<size_t>(got));
  }
  if (environment.size() > 1) return environment;
  const std::optional<ProcessStat> process = ReadProcessStat(pid);
  if (process && !IsDead(*process) && process->env_end == 0) return std::nullopt;
  return std::string();
}

bool HoldsEntry(std::string_view environment, std::string_view mark) {
  std::string entry(1, '\0');
  entry += mark;
  entry += '\0';
  return environment.find(entry) != std::string_view::npos;
}

std::string EntryStartingWith(std::string_view environment, std::string_view start) {
  std::string wanted(1, '\0');
  wanted += start;
  const size_t at = environment.find(wanted);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = environment.substr(at + 1);
  return std::string(rest.substr(0, rest.find('\0')));
}

bool CarriesMark(pid_t pid, const std::string& mark) {
  return HoldsEntry(ReadEnvironment(pid).value_or(""), mark);
}

std::vector<pid_t> MarkedProcesses(const std::string& mark, const std::vector<ProcessStat>& processes) {
  std::vector<pid_t> result;
  for (const ProcessStat& process : processes) {
    if (process.pid != getpid() && !IsDead(process) && CarriesMark(process.pid, mark))
      result.push_back(process.pid);
  }
  return result;
}

bool SignalPinned(pid_t pid, int signal, const std::function<bool(pid_t)>& still_wanted) {
  const absl::StatusOr<ScopedFd> pidfd = OpenPidfd(pid);
  if (!pidfd.ok() || !still_wanted(pid)) return false;
  return syscall(SYS_pidfd_send_signal, pidfd->get(), signal, nullptr, 0) == 0;
}

bool KillPinned(pid_t pid, const std::function<bool(pid_t)>& still_wanted) {
  return SignalPinned(pid, SIGKILL, still_wanted);
}

}  // namespace monarch
