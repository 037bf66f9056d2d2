#include "daemon/launcher/memory_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

// What is read is seen; later changes are news. False: the cgroup has been removed.
bool Read(int fd) {
  char text[4096];
  return pread(fd, text, sizeof(text), 0) >= 0;
}

}  // namespace

MemoryWatch::~MemoryWatch() {
  for (const auto& [cgroup, file] : files_) loop_->Unwatch(file.get());
}

absl::Status MemoryWatch::Add(const std::string& cgroup) {
  const std::string path = absl::StrCat(cgroup, "/", file_);
  ScopedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() || !Read(file.get())) return ErrnoStatus(absl::StrCat("watch ", path), errno);
  Remove(cgroup);
  MONARCH_RETURN_IF_ERROR(
      loop_->WatchFd(file.get(), EPOLLPRI, [this, cgroup](uint32_t) { OnReady(cgroup); }));
  files_.emplace(cgroup, std::move(file));
  return absl::OkStatus();
}

void MemoryWatch::Remove(const std::string& cgroup) {
  const auto file = files_.extract(cgroup);
  if (file) loop_->Unwatch(file.mapped().get());
}

void MemoryWatch::OnReady(const std::string& cgroup) {
  const auto found = files_.find(cgroup);
  if (found == files_.end()) return;
  // Else it would be ready for ever.
  if (!Read(found->second.get())) return Remove(std::string(cgroup));
  on_change_(cgroup);
}

}  // namespace monarch
