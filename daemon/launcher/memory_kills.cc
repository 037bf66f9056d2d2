#include "daemon/launcher/memory_kills.h"

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/launcher/session_cgroup.h"

namespace monarch {
namespace {

constexpr char kEventsFile[] = "/memory.events";
constexpr char kControlFile[] = "/memory.oom_control";

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::optional<int64_t> CountIn(const std::string& path) {
  return path.empty() ? std::nullopt : ParseOomKills(ReadText(path));
}

std::string Rise(const std::string& path, int64_t before, int64_t after) {
  return absl::StrCat("oom_kill in ", path, " rose from ", before, " to ", after);
}

std::string NoRise(const std::string& path, int64_t count) {
  return absl::StrCat("not for lack of memory, for oom_kill in ", path, " stayed ", count,
                      ": somebody sent SIGKILL");
}

}  // namespace

std::optional<int64_t> ParseOomKills(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string key;
  int64_t value = 0;
  while (in >> key >> value) {
    if (key == "oom_kill" && value >= 0) return value;
  }
  return std::nullopt;
}

bool ParseKillIsPending(std::string_view status) {
  std::istringstream in{std::string(status)};
  std::string key;
  for (std::string rest; in >> key && std::getline(in, rest);) {
    if (key == "ShdPnd:") return (strtoull(rest.c_str(), nullptr, 16) >> (SIGKILL - 1) & 1) != 0;
  }
  return false;
}

MemoryKills::MemoryKills(std::string shared)
    : shared_(std::move(shared)), counted_(CountIn(shared_).value_or(0)) {}

std::string MemoryKills::FindShared() {
  const std::string mounts = ReadText("/proc/self/mountinfo");
  const std::string cgroups = ReadText("/proc/self/cgroup");
  if (auto directory = OwnCgroupDirectory(mounts, cgroups); directory.ok()) {
    // Where a cgroup does not count memory itself, the next one above that does counts for it.
    for (std::string at = *directory; !at.empty(); at.resize(at.rfind('/'))) {
      if (CountIn(at + kEventsFile)) return at + kEventsFile;
    }
  }
  const auto directory = OwnCgroupDirectory(mounts, cgroups, "memory");
  const std::string path = directory.ok() ? *directory + kControlFile : "";
  return CountIn(path) ? path : "";
}

void MemoryKills::OnRise(const std::string& cgroup, pid_t pid) {
  // In this order. The kernel counts, then sends, both under the victim's task lock, which whoever reads the
  // status waits for: a kill of this process that is in the count is in the status.
  const std::optional<int64_t> count = CountIn(cgroup + kEventsFile);
  const std::string status = ReadText(absl::StrCat("/proc/", pid, "/status"));
  // A zombie's has no such line: what ended it is to be judged.
  if (!count || !absl::StrContains(status, "VmRSS:") || ParseKillIsPending(status)) return;
  survived_[cgroup] = *count;
}

MemoryVerdict MemoryKills::Judge(const std::string& cgroup) {
  const std::string own = cgroup.empty() ? "" : cgroup + kEventsFile;
  const auto survived = survived_.extract(cgroup);
  if (const std::optional<int64_t> count = CountIn(own)) {
    const int64_t before = survived ? survived.mapped() : 0;
    if (*count > before) return {MemoryVerdict::Answer::kYes, Rise(own, before, *count)};
    return {MemoryVerdict::Answer::kNo, NoRise(own, before)};
  }
  const std::optional<int64_t> count = CountIn(shared_);
  if (!count) {
    return {MemoryVerdict::Answer::kUnknown,
            "cause unknown: no cgroup counts memory here, so whether it was for lack of memory only the "
            "kernel's log "
            "can say (dmesg)"};
  }
  if (*count <= counted_) return {MemoryVerdict::Answer::kNo, NoRise(shared_, counted_)};
  const int64_t before = counted_++;
  return {MemoryVerdict::Answer::kYes, Rise(shared_, before, *count)};
}

}  // namespace monarch
