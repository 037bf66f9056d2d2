#include "daemon/run_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

// A socket's path has 108 bytes, and the longest name in the directory is native.sock.
constexpr size_t kParentBytesMax = 60;
constexpr int kLookerWaitsMax = 1000;
constexpr int kLookerWaitMs = 1;

void RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error)
    LogWarning("daemon", "cannot remove run directory").With("path", path).With("error", error.message());
}

// Of sessions that ended with a daemon that was killed; those with a state file may go on.
void RemoveWorkerLogs(const std::string& dir) {
  std::error_code error;
  std::set<std::string> logs;
  std::vector<std::string> going_on;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    std::string name = entry.path().filename();
    if (absl::EndsWith(name, ".log.1")) name.resize(name.size() - 2);
    if (absl::StartsWith(name, "workers-") && absl::EndsWith(name, ".log")) logs.insert(name);
    absl::string_view session = name;
    if (absl::ConsumePrefix(&session, "session-") && absl::ConsumeSuffix(&session, ".state"))
      going_on.push_back(WorkerLogName(session));
  }
  for (const std::string& name : going_on) logs.erase(name);
  for (const std::string& name : logs) {
    for (const char* half : {"", ".1"}) unlink(absl::StrCat(dir, "/", name, half).c_str());
  }
}

// Who looks whether a daemon lives holds the lock shared, for a moment: then a shared one can be had, beside
// a daemon not. Waits for such a moment to pass.
bool LockUnlessADaemonHasIt(int fd) {
  for (int i = 0; i < kLookerWaitsMax; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK || flock(fd, LOCK_SH | LOCK_NB) != 0) return false;
    flock(fd, LOCK_UN);
    poll(nullptr, 0, kLookerWaitMs);
  }
  errno = EWOULDBLOCK;
  return false;
}

absl::StatusOr<ScopedFd> TakeLock(const std::string& dir, const char* name = "lock") {
  const std::string path = absl::StrCat(dir, "/", name);
  ScopedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(absl::StrCat("open ", path), errno);
  if (!LockUnlessADaemonHasIt(fd.get())) {
    if (errno == EWOULDBLOCK)
      return absl::FailedPreconditionError(absl::StrCat("lock ", path, ": another daemon holds it"));
    return ErrnoStatus(absl::StrCat("lock ", path), errno);
  }
  return fd;
}

absl::StatusOr<std::string> PrivateParent() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') {
    const std::string parent = absl::StrCat(runtime, "/monarch");
    if (parent.size() <= kParentBytesMax && EnsureOwnDirectory(parent).ok()) return parent;
    LogWarning("daemon", "XDG_RUNTIME_DIR is not usable").With("path", parent);
  }
  const std::string parent = absl::StrCat("/tmp/monarch-", geteuid());
  MONARCH_RETURN_IF_ERROR(EnsureOwnDirectory(parent));
  return parent;
}

}  // namespace

std::string WorkerLogName(absl::string_view session) {
  return absl::StrCat("workers-", session.substr(0, 8), ".log");
}

absl::Status EnsureOwnDirectory(const std::string& path, bool for_all) {
  if (mkdir(path.c_str(), for_all ? 0755 : 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(absl::StrCat("make directory ", path), errno);
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(absl::StrCat("look at ", path), errno);
  if (!S_ISDIR(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is not a directory"));
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to uid ", info.st_uid, ", not to uid ", geteuid()));
  }
  if (for_all && (info.st_mode & 022) != 0)
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can be written by others; its mode must be 0755"));
  if (!for_all && (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, " is open to others; its mode must be 0700"));
  }
  return absl::OkStatus();
}

int RemoveStaleRunDirs(const std::string& parent) {
  DIR* dir = opendir(parent.c_str());
  if (dir == nullptr) return 0;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (Id128::FromHex(entry->d_name).ok()) names.push_back(entry->d_name);
  }
  closedir(dir);
  int removed = 0;
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(parent, "/", name);
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) continue;
    // Without a lock file it is one that is being made at this moment, or that is being removed.
    if (access(absl::StrCat(path, "/lock").c_str(), F_OK) != 0) continue;
    const absl::StatusOr<ScopedFd> lock = TakeLock(path);
    if (!lock.ok()) continue;
    LogInfo("daemon", "run directory of a dead daemon removed").With("path", path);
    RemoveTree(path);
    ++removed;
  }
  return removed;
}

absl::StatusOr<std::unique_ptr<RunDir>> RunDir::CreatePrivate() {
  MONARCH_ASSIGN_OR_RETURN(const std::string parent, PrivateParent());
  RemoveStaleRunDirs(parent);
  const std::string path = absl::StrCat(parent, "/", Id128::Random().ToHex());
  if (mkdir(path.c_str(), 0700) != 0) return ErrnoStatus(absl::StrCat("make directory ", path), errno);
  // It has its name once it is held: one that is free is a dead daemon's, whose directory others remove.
  MONARCH_ASSIGN_OR_RETURN(ScopedFd lock, TakeLock(path, "lock.new"));
  if (rename(absl::StrCat(path, "/lock.new").c_str(), absl::StrCat(path, "/lock").c_str()) != 0) {
    return ErrnoStatus(absl::StrCat("name the lock of ", path), errno);
  }
  return std::unique_ptr<RunDir>(new RunDir(path, std::move(lock), true));
}

absl::StatusOr<std::unique_ptr<RunDir>> RunDir::Open(const std::string& path, bool for_all) {
  MONARCH_RETURN_IF_ERROR(EnsureOwnDirectory(path, for_all));
  MONARCH_ASSIGN_OR_RETURN(ScopedFd lock, TakeLock(path));
  // Left by a daemon that was killed; nobody serves them, for the lock is ours.
  unlink(absl::StrCat(path, "/grpc.sock").c_str());
  unlink(absl::StrCat(path, "/native.sock").c_str());
  RemoveWorkerLogs(path);
  return std::unique_ptr<RunDir>(new RunDir(path, std::move(lock), false));
}

RunDir::~RunDir() {
  if (remove_) RemoveTree(path_);
}

}  // namespace monarch
