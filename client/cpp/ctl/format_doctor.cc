#include "absl/strings/str_cat.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"

namespace monarch::ctl {
namespace {

std::string PercentOf(const v1::LimitUse& limit) {
  if (!limit.has_used() || limit.value() == 0) return "-";
  return absl::StrCat(
      static_cast<uint64_t>(static_cast<double>(limit.used()) * 100 / static_cast<double>(limit.value())),
      "%");
}

}  // namespace

std::string FormatDoctor(const std::vector<Snapshot>& snapshots) {
  std::string text;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.answer.ok()) continue;
    const v1::GetStatusResponse& status = snapshot.status;
    absl::StrAppend(&text, Printable(status.host_name()), "  (", status.is_private() ? "private" : "system",
                    " daemon, pid ", status.pid(), ", ", Printable(snapshot.place.Address()), ")\n");
    // "-": each process keeps to it by itself.
    Table table({"LIMIT", "VALUE", "USED", "", "WHAT"});
    for (const v1::LimitUse& limit : status.limits()) {
      table.Add({Printable(limit.name()), absl::StrCat(limit.value()),
                 limit.has_used() ? absl::StrCat(limit.used()) : "-", PercentOf(limit),
                 Printable(limit.what())});
    }
    text += table.ToString();
  }
  return absl::StrCat(text, FormatUnanswered(snapshots));
}

}  // namespace monarch::ctl
