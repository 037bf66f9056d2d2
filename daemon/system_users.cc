#include "daemon/system_users.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

constexpr char kAdvice[] = "; MONARCH_ADDRESS=private starts a daemon of its own";

absl::StatusOr<std::string> NamespaceOf(pid_t pid, const char* kind) {
  const std::string path = absl::StrCat("/proc/", pid, "/ns/", kind);
  char target[128];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  if (length < 0) return ErrnoStatus(absl::StrCat("read ", path, " (needs CAP_SYS_PTRACE)"), errno);
  return std::string(target, static_cast<size_t>(length));
}

}  // namespace

absl::Status CheckSystemClient(uid_t uid, pid_t pid, bool allow_root) {
  if (uid == 0 && !allow_root) {
    return absl::PermissionDeniedError(absl::StrCat(
        "this host's daemon starts no processes of root unless it runs with --allow-root", kAdvice));
  }
  // Not this daemon's own namespaces: its unit may have a mount namespace to itself.
  for (const char* kind : {"user", "pid", "mnt"}) {
    const absl::StatusOr<std::string> hosts = NamespaceOf(1, kind);
    const absl::StatusOr<std::string> theirs = NamespaceOf(pid, kind);
    if (!hosts.ok()) return hosts.status();
    if (!theirs.ok()) return theirs.status();
    if (*hosts != *theirs) {
      return absl::PermissionDeniedError(
          absl::StrCat("this host's daemon serves no client in a container: its ", kind,
                       " namespace is not the host's", kAdvice));
    }
  }
  return absl::OkStatus();
}

std::string LaunchersDirectory(const std::string& run_dir, bool is_system, uid_t uid) {
  return is_system ? absl::StrCat(run_dir, "/users/", uid) : run_dir;
}

absl::StatusOr<std::string> PrepareUserDirectory(const std::string& run_dir, uid_t uid) {
  const std::string users = run_dir + "/users";
  if (mkdir(users.c_str(), 0755) != 0 && errno != EEXIST)
    return ErrnoStatus(absl::StrCat("make directory ", users), errno);
  const std::string path = absl::StrCat(users, "/", uid);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(absl::StrCat("make directory ", path), errno);
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(absl::StrCat("open ", path), errno);
  if (fchown(fd.get(), uid, static_cast<gid_t>(-1)) != 0)
    return ErrnoStatus(absl::StrCat("give ", path, " to its user"), errno);
  return path;
}

}  // namespace monarch
