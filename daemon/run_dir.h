#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/scoped_fd.h"

namespace monarch {

// The directory of one daemon's sockets and lock. It is this user's (0700, no link), and its flock on
// `lock` is held for as long as the daemon lives: who can take it finds a directory that was left behind.
// Threading: immutable after creation.
class RunDir {
 public:
  // A new directory for a private daemon: $XDG_RUNTIME_DIR/monarch/<random>, else
  // /tmp/monarch-<uid>/<random>. Those that dead daemons of this user left there are removed first.
  static absl::StatusOr<std::unique_ptr<RunDir>> CreatePrivate();
  // That directory, made if needed. FailedPrecondition: another daemon holds its lock. What a dead daemon
  // left is removed, but for state files and the logs of their sessions. `for_all`: others may enter (0755),
  // as its sockets' modes let them.
  static absl::StatusOr<std::unique_ptr<RunDir>> Open(const std::string& path, bool for_all = false);
  // A directory of CreatePrivate is removed whole.
  ~RunDir();
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  RunDir(std::string path, ScopedFd lock, bool remove)
      : path_(std::move(path)), lock_(std::move(lock)), remove_(remove) {}

  const std::string path_;
  const ScopedFd lock_;
  const bool remove_;
};

// The name in it of what a session's workers print; `session`: in hex.
std::string WorkerLogName(absl::string_view session);
// Makes `path` if needed and checks that it is a directory (no link) of this user with mode 0700; `for_all`:
// that no other can write in it.
absl::Status EnsureOwnDirectory(const std::string& path, bool for_all = false);
// Removes the directories in `parent` whose lock nobody holds; returns how many. Others' and odd entries are
// left alone.
int RemoveStaleRunDirs(const std::string& parent);

}  // namespace monarch
