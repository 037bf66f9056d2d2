#include "absl/strings/str_cat.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"

namespace monarch::ctl {
namespace {

// Limits this full are shown without being asked for.
constexpr uint64_t kWorthSayingPercent = 80;

std::string FullLimits(const v1::GetStatusResponse& status) {
  std::string text;
  for (const v1::LimitUse& limit : status.limits()) {
    if (limit.value() == 0) continue;
    const auto percent = static_cast<uint64_t>(static_cast<double>(limit.used()) * 100 / limit.value());
    if (percent < kWorthSayingPercent) continue;
    absl::StrAppend(&text, Printable(status.host_name()), ": limit ", Printable(limit.name()), " is ",
                    percent, "% used: ", limit.used(), " of ", limit.value(), "\n");
  }
  return text;
}

}  // namespace

std::string FormatStatus(const std::vector<Snapshot>& snapshots) {
  Table table({"HOST", "KIND", "PID", "VERSION", "UP", "SESSIONS", "PROCS", "ACTORS", "ADDRESS"});
  std::string limits;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.answer.ok()) continue;
    const v1::GetStatusResponse& status = snapshot.status;
    table.Add({Printable(status.host_name()), status.is_private() ? "private" : "system",
               absl::StrCat(status.pid()), Printable(status.version()), FormatAge(status.uptime_ms()),
               absl::StrCat(status.sessions()), absl::StrCat(status.procs()), absl::StrCat(status.actors()),
               Printable(snapshot.place.Address())});
    limits += FullLimits(status);
  }
  return absl::StrCat(table.empty() ? "" : table.ToString(), limits, FormatUnanswered(snapshots));
}

}  // namespace monarch::ctl
