#include "daemon/launcher/process_stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

// Positions behind the command, counted from 0: state is stat's field 3.
constexpr size_t kStateIndex = 0;
constexpr size_t kParentIndex = 1;
constexpr size_t kStartTimeIndex = 22 - 3;
constexpr size_t kEnvEndIndex = 51 - 3;
constexpr size_t kExitCodeIndex = 52 - 3;

// One line of stat: 52 numbers of at most 20 digits and a short command.
constexpr size_t kStatBytesMax = 2048;

}  // namespace

absl::StatusOr<ProcessStat> ParseProcessStat(std::string_view line) {
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  const absl::Status bad = absl::InvalidArgumentError("not a line of /proc/<pid>/stat");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return bad;
  ProcessStat stat;
  const std::string head(line.substr(0, open));
  const std::string tail(line.substr(close + 1));
  if (!absl::SimpleAtoi(head, &stat.pid)) return bad;
  const std::vector<std::string> fields = absl::StrSplit(tail, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (fields.size() <= kExitCodeIndex || fields[kStateIndex].size() != 1) return bad;
  stat.state = fields[kStateIndex][0];
  if (!absl::SimpleAtoi(fields[kParentIndex], &stat.parent)) return bad;
  if (!absl::SimpleAtoi(fields[kStartTimeIndex], &stat.start_time)) return bad;
  if (!absl::SimpleAtoi(fields[kEnvEndIndex], &stat.env_end)) return bad;
  if (!absl::SimpleAtoi(fields[kExitCodeIndex], &stat.exit_code)) return bad;
  return stat;
}

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  const ScopedFd fd(open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  char buffer[kStatBytesMax];
  const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
  if (got <= 0) return std::nullopt;
  const absl::StatusOr<ProcessStat> stat =
      ParseProcessStat(std::string_view(buffer, static_cast<size_t>(got)));
  if (!stat.ok()) return std::nullopt;
  return *stat;
}

std::vector<ProcessStat> ListProcesses() {
  std::vector<ProcessStat> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc"), &closedir);
  if (directory == nullptr) return result;
  while (const dirent* entry = readdir(directory.get())) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    if (std::optional<ProcessStat> stat = ReadProcessStat(pid)) result.push_back(*stat);
  }
  return result;
}

std::vector<pid_t> ListChildren() {
  std::vector<pid_t> result;
  bool listed = false;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), &closedir);
  while (const dirent* entry = tasks != nullptr ? readdir(tasks.get()) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    // Children belong to the thread that made or adopted them.
    std::ifstream in(absl::StrCat("/proc/self/task/", std::string(entry->d_name), "/children"));
    listed = listed || in.good();
    pid_t pid = 0;
    while (in >> pid) result.push_back(pid);
  }
  if (listed) return result;
  for (const ProcessStat& process : ListProcesses()) {
    if (process.parent == getpid()) result.push_back(process.pid);
  }
  return result;
}

}  // namespace monarch
