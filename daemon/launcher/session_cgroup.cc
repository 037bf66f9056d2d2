#include "daemon/launcher/session_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void AppendMembers(const std::string& directory, std::vector<pid_t>* members) {
  std::ifstream in(directory + "/cgroup.procs");
  pid_t pid = 0;
  // 0: one of another pid namespace, which cannot be named here.
  while (in >> pid) {
    if (pid > 0) members->push_back(pid);
  }
}

std::vector<pid_t> MembersBelow(const std::string& directory) {
  std::vector<pid_t> members;
  std::error_code error;
  AppendMembers(directory, &members);
  for (auto it = std::filesystem::recursive_directory_iterator(directory, error);
       !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) AppendMembers(it->path().string(), &members);
  }
  return members;
}

bool KillIn(const std::string& directory) {
  const ScopedFd fd(open(absl::StrCat(directory, "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() && write(fd.get(), "1", 1) == 1;
}

std::string NameOf(const SessionId& session) { return absl::StrCat("/monarch-session-", session.ToHex()); }

absl::StatusOr<std::string> OwnDirectory() {
  return OwnCgroupDirectory(ReadText("/proc/self/mountinfo"), ReadText("/proc/self/cgroup"));
}

// Whether `word` is in a list with commas; the empty list has the empty word.
bool Lists(const std::string& list, std::string_view word) {
  const std::vector<std::string> words = absl::StrSplit(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool HasWord(const std::string& text, std::string_view word) {
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"));
  return std::find(words.begin(), words.end(), word) != words.end();
}

absl::Status WriteTo(const std::string& path, const std::string& text) {
  const ScopedFd fd(open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (fd.valid() && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  return ErrnoStatus(absl::StrCat("write ", text, " to ", path), errno);
}

// A killed process leaves its directories behind, and a worker may make more below its own: deepest first.
bool RemoveTree(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_directory(error) && !entry.is_symlink(error)) RemoveTree(entry.path().string());
  }
  return rmdir(directory.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

absl::StatusOr<std::string> OwnCgroupDirectory(std::string_view mountinfo, std::string_view cgroup,
                                               std::string_view controller) {
  std::string own;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(std::string(cgroup), '\n'))) {
    // number, controllers (none: version 2), path
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() == 3 && Lists(fields[1], controller)) own = fields[2];
  }
  if (own.empty()) return absl::NotFoundError("in no such cgroup");
  const char* const type = controller.empty() ? " - cgroup2 " : " - cgroup ";
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(std::string(mountinfo), '\n'))) {
    if (!absl::StrContains(line, type)) continue;
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    if (!controller.empty() && !Lists(fields.back(), controller)) continue;
    // id, parent, device, root of the mount in its filesystem, mount point
    if (fields.size() < 5) continue;
    const std::string root = fields[3] == "/" ? "" : fields[3];
    if (!absl::StartsWith(own, root)) continue;
    const std::string below = own.substr(root.size());
    return absl::StrCat(fields[4], below == "/" ? "" : below);
  }
  return absl::NotFoundError("no such cgroup mounted");
}

absl::StatusOr<SessionCgroup> SessionCgroup::Create(const SessionId& session) {
  MONARCH_ASSIGN_OR_RETURN(const std::string own, OwnDirectory());
  if (access(absl::StrCat(own, "/cgroup.procs").c_str(), W_OK) != 0) {
    return ErrnoStatus(absl::StrCat("write ", own, "/cgroup.procs"), errno);
  }
  return CreateIn(own, session);
}

absl::StatusOr<SessionCgroup> SessionCgroup::CreateIn(const std::string& root, const SessionId& session) {
  std::string path = root + NameOf(session);
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return ErrnoStatus(absl::StrCat("create ", path), errno);
  return SessionCgroup(std::move(path));
}

SessionCgroup SessionCgroup::Missing(std::string why) {
  SessionCgroup none;
  none.missing_ = std::move(why);
  return none;
}

SessionCgroup SessionCgroup::Find(const SessionId& session) {
  const absl::StatusOr<std::string> own = OwnDirectory();
  return own.ok() ? FindIn(*own, session) : SessionCgroup();
}

SessionCgroup SessionCgroup::FindIn(const std::string& root, const SessionId& session) {
  std::string path = root + NameOf(session);
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? SessionCgroup(std::move(path)) : SessionCgroup();
}

std::string SessionCgroup::LeafOf(const ProcAddress& proc) const {
  return absl::StrCat(path_, "/proc-", proc.proc, ".", proc.incarnation);
}

std::string SessionCgroup::ProcsFileFor(const ProcAddress& proc) {
  if (!exists()) return {};
  const std::string leaf = LeafOf(proc);
  if (mkdir(leaf.c_str(), 0755) != 0 && errno != EEXIST) return {};
  return leaf + "/cgroup.procs";
}

absl::Status SessionCgroup::CheckExists() const {
  if (exists()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no cgroup of version 2 that the session may write: ", missing_));
}

absl::Status SessionCgroup::Enable(const std::string& controller) const {
  const std::string above = Above();
  const std::string available = ReadText(above + "/cgroup.controllers");
  if (!HasWord(available, controller)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no ", controller, " controller in ", above,
                     "/cgroup.controllers, which has: ", absl::StripAsciiWhitespace(available)));
  }
  for (const std::string& directory : {above, path_}) {
    // EBUSY: it has members, and then gives no controllers to those below.
    const std::string file = directory + "/cgroup.subtree_control";
    if (HasWord(ReadText(file), controller)) continue;
    MONARCH_RETURN_IF_ERROR(WriteTo(file, "+" + controller));
  }
  return absl::OkStatus();
}

absl::Status SessionCgroup::Divide() const {
  MONARCH_RETURN_IF_ERROR(CheckExists());
  const std::string above = Above();
  std::vector<pid_t> members;
  AppendMembers(above, &members);
  if (members != std::vector<pid_t>{getpid()}) {
    return absl::FailedPreconditionError(absl::StrCat(above, " is not the session's alone"));
  }
  const std::string below = above + "/monarch-launcher";
  if (mkdir(below.c_str(), 0755) != 0 && errno != EEXIST)
    return ErrnoStatus(absl::StrCat("create ", below), errno);
  MONARCH_RETURN_IF_ERROR(WriteTo(below + "/cgroup.procs", "0"));
  MONARCH_RETURN_IF_ERROR(Enable("memory"));
  return Enable("pids");
}

absl::Status SessionCgroup::Limit(const ProcAddress& proc, const CgroupLimits& limits) {
  if (limits.memory_bytes_max == 0 && limits.pids_max == 0) return absl::OkStatus();
  MONARCH_RETURN_IF_ERROR(CheckExists());
  if (limits.memory_bytes_max != 0) MONARCH_RETURN_IF_ERROR(Enable("memory"));
  if (limits.pids_max != 0) MONARCH_RETURN_IF_ERROR(Enable("pids"));
  if (ProcsFileFor(proc).empty()) return ErrnoStatus(absl::StrCat("create ", LeafOf(proc)), errno);
  const std::string leaf = LeafOf(proc);
  if (limits.pids_max != 0) {
    MONARCH_RETURN_IF_ERROR(WriteTo(leaf + "/pids.max", absl::StrCat(limits.pids_max)));
  }
  if (limits.memory_bytes_max == 0) return absl::OkStatus();
  MONARCH_RETURN_IF_ERROR(WriteTo(leaf + "/memory.max", absl::StrCat(limits.memory_bytes_max)));
  // The file is missing where the kernel has no swap.
  const std::string swap = leaf + "/memory.swap.max";
  if (access(swap.c_str(), F_OK) == 0) MONARCH_RETURN_IF_ERROR(WriteTo(swap, "0"));
  return WriteTo(leaf + "/memory.oom.group", "1");
}

std::vector<pid_t> SessionCgroup::LeafMembers(const ProcAddress& proc) const {
  return exists() ? MembersBelow(LeafOf(proc)) : std::vector<pid_t>();
}

bool SessionCgroup::KillLeaf(const ProcAddress& proc) const { return exists() && KillIn(LeafOf(proc)); }

bool SessionCgroup::RemoveLeaf(const ProcAddress& proc) const {
  return !exists() || RemoveTree(LeafOf(proc));
}

std::vector<pid_t> SessionCgroup::Members() const {
  return exists() ? MembersBelow(path_) : std::vector<pid_t>();
}

bool SessionCgroup::Kill() const { return exists() && KillIn(path_); }

bool SessionCgroup::Remove() {
  if (!exists()) return true;
  if (!RemoveTree(path_)) return false;
  path_.clear();
  return true;
}

}  // namespace monarch
