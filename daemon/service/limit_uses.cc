#include "daemon/service/limit_uses.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "daemon/native_connection.h"

namespace monarch {
namespace {

constexpr uint64_t kBlockBytes = 512;  // of st_blocks

uint64_t FileBytes(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

// What is backed by memory.
uint64_t SegmentBytes(const ProcRecord& record) {
  struct stat info {};
  if (!record.shared.segment.valid() || fstat(record.shared.segment.get(), &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
}

}  // namespace

std::map<std::string, uint64_t> LimitUses(const DaemonContext& context, const SessionManager& sessions) {
  std::map<std::string, uint64_t> uses;
  const auto most = [&uses](const char* name, uint64_t used) { uses[name] = std::max(uses[name], used); };
  most("procs_per_host_max", static_cast<uint64_t>(context.workers));
  most("sessions_per_host_max", sessions.sessions().size());
  for (const char* name : {"procs_per_session_max", "actors_per_proc_max", "peer_hosts_max",
                           "segment_bytes_max", "relay_proc_queue_bytes_max", "session_log_bytes_max"})
    most(name, 0);
  for (const auto& [id, session] : sessions.sessions()) {
    most("procs_per_session_max", session->procs().workers());
    most("peer_hosts_max", session->host_count());
    const std::string log = session->log_path();
    most("session_log_bytes_max", FileBytes(log) + FileBytes(absl::StrCat(log, ".1")));
    for (const auto& [proc, record] : session->procs().all()) {
      most("actors_per_proc_max", static_cast<uint64_t>(record.actors_up));
      most("segment_bytes_max", SegmentBytes(record));
      if (record.connection) most("relay_proc_queue_bytes_max", record.connection->frame_bytes());
    }
  }
  return uses;
}

OpenFiles CountOpenFiles() {
  std::error_code error;
  OpenFiles files;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  if (!error) files.used = static_cast<uint64_t>(std::distance(begin(fds), end(fds)));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) files.most = limit.rlim_cur;
  return files;
}

}  // namespace monarch
