#include "daemon/service/failure_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/scoped_fd.h"
#include "daemon/service/process_conversion.h"
#include "proto/failure_event_conversion.h"
#include "proto/failure_file.h"

namespace monarch {
namespace {

// A process's last words come milliseconds after its death, and failures often come together.
constexpr absl::Duration kDelay = absl::Milliseconds(200);
constexpr size_t kFilesMax = 16;

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  const ScopedFd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(absl::StrCat("open ", fresh), errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      unlink(fresh.c_str());
      return ErrnoStatus(absl::StrCat("write ", fresh), error);
    }
    done += static_cast<size_t>(wrote);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) return ErrnoStatus(absl::StrCat("name ", path), errno);
  return absl::OkStatus();
}

// Errors are those of files that another daemon removes at the same moment.
void RemoveOldest(const std::string& folder) {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!absl::StartsWith(entry.path().filename().string(), std::string(kFailureFilePrefix))) continue;
    const auto time = entry.last_write_time(error);
    if (!error) files.emplace_back(time, entry.path());
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kFilesMax < files.size(); ++i) std::filesystem::remove(files[i].second, error);
}

}  // namespace

v1::GetFailuresResponse FailuresOf(const EventLog& log) {
  v1::GetFailuresResponse failures;
  for (auto entry = log.entries().rbegin(); entry != log.entries().rend(); ++entry) {
    // A process that got ready has an event, too: who it is. That a handler has ended stands where it hung.
    if (!entry->failure || entry->what == "proc_ready" || entry->what == "actor_recovered" ||
        entry->failure->is_stop())
      continue;
    v1::FailureRecord* record = failures.add_failures();
    record->set_session(entry->session);
    record->set_unix_ms(entry->unix_ms);
    *record->mutable_event() = ToProto(*entry->failure);
    if (entry->hang) *record->mutable_hang() = HangToProto(*entry);
    for (const EventLog::LostActor& lost : entry->lost_actors) {
      v1::LostActor* actor = record->add_lost_actors();
      actor->set_mesh(lost.mesh);
      actor->set_rank(lost.rank);
      actor->set_actor_class(lost.actor_class);
    }
  }
  return failures;
}

FailureKeeper::FailureKeeper(EventLoop* loop, EventLog* log, const std::string& run_dir)
    : loop_(loop),
      log_(log),
      folder_(std::filesystem::path(run_dir).parent_path()),
      path_(absl::StrCat(folder_, "/", std::string(kFailureFilePrefix),
                         std::filesystem::path(run_dir).filename().string())) {
  subscription_ = log_->Subscribe([this] {
    if (std::exchange(waiting_, true)) return;
    timer_ = loop_->RunAfter(kDelay, [this] {
      waiting_ = false;
      Write();
    });
  });
}

FailureKeeper::~FailureKeeper() {
  log_->Unsubscribe(subscription_);
  if (waiting_) loop_->Cancel(timer_);
  Write();
}

void FailureKeeper::Write() {
  v1::GetFailuresResponse failures = FailuresOf(*log_);
  if (failures.failures().empty()) return;
  if (const absl::Status written = WriteFile(path_, EncodeFailureFile(std::move(failures))); !written.ok()) {
    LogWarning("daemon", "failures will be forgotten").With("error", written.ToString());
  }
  RemoveOldest(folder_);
}

}  // namespace monarch
