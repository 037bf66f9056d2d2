#include "client/cpp/ctl/ended_daemons.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/scoped_fd.h"
#include "proto/failure_file.h"

namespace monarch::ctl {
namespace {

std::optional<std::string> ReadOwnFile(const std::string& path) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) return std::nullopt;
  // One byte more than is allowed shows that it is too large.
  std::string text(std::min<size_t>(info.st_size, kFailureFileBytesMax + 1), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t count = read(fd.get(), text.data() + got, text.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    got += static_cast<size_t>(count);
  }
  text.resize(got);
  return text;
}

// Of the daemon that had the run directory `directory`.
std::optional<Snapshot> Ended(const std::string& directory) {
  const std::filesystem::path run_dir(directory);
  const std::string path = absl::StrCat(run_dir.parent_path().string(), "/", std::string(kFailureFilePrefix),
                                        run_dir.filename().string());
  const std::optional<std::string> text = ReadOwnFile(path);
  if (!text) return std::nullopt;
  absl::StatusOr<v1::GetFailuresResponse> failures = DecodeFailureFile(*text);
  if (!failures.ok()) {
    std::fprintf(stderr, "monarchctl: %s: %s; passed over\n", path.c_str(),
                 std::string(failures.status().message()).c_str());
    return std::nullopt;
  }
  Snapshot snapshot;
  snapshot.place.directory = directory;
  snapshot.failures = *std::move(failures);
  snapshot.ended = true;
  return snapshot;
}

}  // namespace

void AddEndedDaemons(const std::vector<std::string>& folders, std::vector<Snapshot>* snapshots) {
  std::vector<std::string> known;
  for (Snapshot& snapshot : *snapshots) {
    known.push_back(snapshot.place.directory);
    if (!absl::IsUnavailable(snapshot.answer)) continue;
    if (std::optional<Snapshot> ended = Ended(snapshot.place.directory)) snapshot = *std::move(ended);
  }
  for (const std::string& folder : folders) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename();
      // ".new": not finished.
      if (!absl::StartsWith(name, std::string(kFailureFilePrefix)) || absl::EndsWith(name, ".new")) continue;
      const std::string directory = absl::StrCat(folder, "/", name.substr(kFailureFilePrefix.size()));
      if (std::find(known.begin(), known.end(), directory) != known.end()) continue;
      if (std::optional<Snapshot> ended = Ended(directory)) snapshots->push_back(*std::move(ended));
    }
  }
}

}  // namespace monarch::ctl
