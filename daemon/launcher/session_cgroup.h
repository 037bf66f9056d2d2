#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace monarch {

// A cgroup (version 2) below the launcher's own, for one session: one leaf a worker. Where version 2 is not
// mounted or not writable there is none, and everything here does nothing: the other means of ending a
// session remain. Threading: confined to the launcher's loop.
class SessionCgroup {
 public:
  SessionCgroup() = default;
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

  std::string path_;
};

// Directory of this process's cgroup from the texts of /proc/self/mountinfo and /proc/self/cgroup: the
// version 2 one, or the version 1 one of `controller`. NotFound.
absl::StatusOr<std::string> OwnCgroupDirectory(std::string_view mountinfo, std::string_view cgroup,
                                               std::string_view controller = "");

}  // namespace monarch
