#include "client/cpp/ctl/daemon_finder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/scoped_fd.h"

namespace monarch::ctl {
namespace {

bool IsPrivateFolder(const std::string& path, uid_t uid) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return false;
  return S_ISDIR(info.st_mode) && info.st_uid == uid && (info.st_mode & 077) == 0;
}

bool IsSocket(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

// A daemon holds its lock exclusively for as long as it lives. A shared one is asked for, so that two of us
// at once do not take each other for a daemon.
bool IsLocked(const std::string& path) {
  ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return false;
  return flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), &closedir);
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string DaemonPlace::Address() const { return absl::StrCat("unix:", directory); }

std::string DaemonPlace::Socket() const { return absl::StrCat("unix:", directory, "/grpc.sock"); }

FinderOptions FinderOptions::FromEnvironment() {
  FinderOptions options;
  if (const char* folder = std::getenv("XDG_RUNTIME_DIR"); folder != nullptr)
    options.runtime_directory = folder;
  options.uid = geteuid();
  return options;
}

std::vector<DaemonPlace> FindDaemons(const FinderOptions& options) {
  std::vector<DaemonPlace> places;
  if (IsSocket(absl::StrCat(options.system_directory, "/grpc.sock"))) {
    places.push_back({options.system_directory});
  }
  for (const std::string& parent : PrivateFolders(options)) {
    for (const std::string& name : Entries(parent)) {
      if (static_cast<int>(places.size()) == options.daemons_max) return places;
      const std::string folder = absl::StrCat(parent, "/", name);
      if (IsPrivateFolder(folder, options.uid) && IsLocked(absl::StrCat(folder, "/lock"))) {
        places.push_back({folder});
      }
    }
  }
  return places;
}

std::vector<std::string> PrivateFolders(const FinderOptions& options) {
  std::vector<std::string> folders;
  if (!options.runtime_directory.empty())
    folders.push_back(absl::StrCat(options.runtime_directory, "/monarch"));
  folders.push_back(absl::StrCat(options.temporary_directory, "/monarch-", options.uid));
  const auto unsafe = [&](const std::string& folder) { return !IsPrivateFolder(folder, options.uid); };
  folders.erase(std::remove_if(folders.begin(), folders.end(), unsafe), folders.end());
  return folders;
}

absl::StatusOr<DaemonPlace> PlaceFromAddress(const std::string& address) {
  const std::string kScheme = "unix:";
  if (!absl::StartsWith(address, kScheme) || address.size() == kScheme.size()) {
    return absl::InvalidArgumentError(absl::StrCat("not an address: \"", address, "\"; expected unix:DIR"));
  }
  std::string directory = address.substr(kScheme.size());
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  return DaemonPlace{directory};
}

}  // namespace monarch::ctl
