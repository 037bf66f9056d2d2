#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace monarch {

// What one worker, with all that it starts, may take. 0: no limit. Plain data.
struct CgroupLimits {
  uint64_t memory_bytes_max = 0;  // with what it would swap; beyond it all of the worker is killed at once
  uint64_t pids_max = 0;          // processes and threads; beyond it none can be made
};

// A cgroup (version 2) below the launcher's own, for one session: one leaf a worker. Where version 2 is not
// mounted or not writable there is none, and everything here does nothing: the other means of ending a
// session remain. Threading: confined to the launcher's loop.
class SessionCgroup {
 public:
  SessionCgroup() = default;
  // None, and why.
  static SessionCgroup Missing(std::string why);
  // In the cgroup this process is in. Unavailable (and why) if that cannot be.
  static absl::StatusOr<SessionCgroup> Create(const SessionId& session);
  // `root`: the directory of an existing cgroup, or whatever a test takes for one.
  static absl::StatusOr<SessionCgroup> CreateIn(const std::string& root, const SessionId& session);

  // One that was created earlier, by the launcher that is gone, in the cgroup this process is in; else one
  // that does not exist.
  static SessionCgroup Find(const SessionId& session);
  static SessionCgroup FindIn(const std::string& root, const SessionId& session);

  bool exists() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  // The file by which a worker enters a leaf of its own, made here; empty if there is none.
  std::string ProcsFileFor(const ProcAddress& proc);
  // Where nobody else is in this process's cgroup, which is then the session's own: moves this process into a
  // cgroup below it, for one with members gives no controllers to those below, and has each leaf's memory and
  // processes counted. An error says why it is not.
  absl::Status Divide() const;
  // Sets limits for that leaf, made here. What is missing is named. Without any limit it does nothing.
  absl::Status Limit(const ProcAddress& proc, const CgroupLimits& limits);
  // Where that leaf is; empty if there is no cgroup.
  std::string LeafDirectory(const ProcAddress& proc) const { return exists() ? LeafOf(proc) : std::string(); }
  // All processes of a worker's leaf, and of what the worker made below it.
  std::vector<pid_t> LeafMembers(const ProcAddress& proc) const;
  // Kills them at once; false if this kernel cannot.
  bool KillLeaf(const ProcAddress& proc) const;
  // True if nothing is left of it.
  bool RemoveLeaf(const ProcAddress& proc) const;
  // All processes in it.
  std::vector<pid_t> Members() const;
  // Kills every member at once; false if this kernel cannot.
  bool Kill() const;
  // True if nothing is left of it.
  bool Remove();

 private:
  explicit SessionCgroup(std::string path) : path_(std::move(path)) {}
  std::string LeafOf(const ProcAddress& proc) const;
  std::string Above() const { return path_.substr(0, path_.rfind('/')); }
  absl::Status CheckExists() const;
  absl::Status Enable(const std::string& controller) const;

  std::string path_;
  std::string missing_ = "none was made";  // why there is none
};

// Directory of this process's cgroup from the texts of /proc/self/mountinfo and /proc/self/cgroup: the
// version 2 one, or the version 1 one of `controller`. NotFound.
absl::StatusOr<std::string> OwnCgroupDirectory(std::string_view mountinfo, std::string_view cgroup,
                                               std::string_view controller = "");

}  // namespace monarch
