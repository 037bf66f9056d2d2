#include "daemon/launcher/keepsakes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace monarch {

absl::Status Keepsakes::Keep(const Value& body, std::vector<ScopedFd> fds) {
  MONARCH_ASSIGN_OR_RETURN(const std::string key, body["key"].AsString());
  if (entries_.size() >= entries_max_ && !entries_.contains(key)) {
    return absl::ResourceExhaustedError(absl::StrCat("keep: ", entries_max_, " entries are kept"));
  }
  entries_.insert_or_assign(key, Entry{body, std::move(fds)});
  return absl::OkStatus();
}

absl::Status Keepsakes::Forget(const Value& body) {
  MONARCH_ASSIGN_OR_RETURN(const std::string key, body["key"].AsString());
  entries_.erase(key);
  if (body["proc"].is_nil()) return absl::OkStatus();
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(body["proc"]));
  news_.erase(proc);
  return absl::OkStatus();
}

void Keepsakes::AddNews(const ProcAddress& proc, const ControlMessage& message) {
  news_[proc].push_back(message);
}

void Keepsakes::TellAll(Send send) const {
  for (const auto& [key, entry] : entries_) send({ControlType::kKeep, 0, entry.body}, entry.fds);
  for (const auto& [proc, messages] : news_) {
    for (const ControlMessage& message : messages) send(message, {});
  }
}

}  // namespace monarch
