#include "client/cpp/ctl/format.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/ctl/table.h"

namespace monarch::ctl {

std::string FormatAge(int64_t ms) {
  if (ms < 1000) return absl::StrCat(std::max<int64_t>(ms, 0), "ms");
  const int64_t s = ms / 1000;
  if (s < 60) return absl::StrCat(s, "s");
  if (s < 3600) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  if (s < 86400) return absl::StrFormat("%dh%02dm", s / 3600, s % 3600 / 60);
  return absl::StrFormat("%dd%02dh", s / 86400, s % 86400 / 3600);
}

std::string ShortSession(const std::string& session) { return Printable(session.substr(0, 8)); }

std::string FormatUnanswered(const std::vector<Snapshot>& snapshots) {
  std::string text;
  for (const Snapshot& snapshot : snapshots) {
    if (snapshot.answer.ok()) continue;
    absl::StrAppend(&text, "daemon at ", Printable(snapshot.place.Address()), ": ",
                    Printable(std::string(snapshot.answer.message())), "\n");
  }
  return text;
}

}  // namespace monarch::ctl
