#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/failure_event.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"
#include "proto/failure_event_conversion.h"

namespace monarch::ctl {
namespace {

constexpr size_t kOthersShownMax = 5;
constexpr int kLostShownMax = 8;

std::string PrintableLines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) line = Printable(line);
  return absl::StrJoin(lines, "\n");
}

std::string Member(const std::string& mesh, uint32_t rank) {
  return Printable(absl::StrCat(mesh, ":", rank));
}

std::string LostActors(const v1::FailureRecord& record) {
  std::vector<std::string> names;
  for (const v1::LostActor& actor : record.lost_actors()) {
    if (names.size() == static_cast<size_t>(kLostShownMax)) break;
    names.push_back(
        absl::StrCat(Member(actor.mesh(), actor.rank()), " (", Printable(actor.actor_class()), ")"));
  }
  if (names.empty()) return "";
  const int more = record.lost_actors_size() - kLostShownMax;
  return absl::StrCat("  its actors: ", absl::StrJoin(names, ", "), more > 0 ? ", ..." : "", "\n");
}

std::string Report(const v1::FailureRecord& record) {
  const absl::StatusOr<FailureEvent> event = FromProto(record.event());
  if (!event.ok()) return absl::StrCat("its record is not readable: ", std::string(event.status().message()));
  return event->Report();
}

std::string Age(const v1::FailureRecord& record, int64_t now_unix_ms) {
  return absl::StrCat(FormatAge(now_unix_ms - record.unix_ms()), " ago");
}

}  // namespace

std::string FormatWhy(const std::vector<Snapshot>& snapshots, const std::string& target,
                      int64_t now_unix_ms) {
  std::vector<const v1::FailureRecord*> records;
  for (const Snapshot& snapshot : snapshots) {
    for (const v1::FailureRecord& record : snapshot.failures.failures()) records.push_back(&record);
  }
  std::stable_sort(
      records.begin(), records.end(),
      [](const v1::FailureRecord* a, const v1::FailureRecord* b) { return a->unix_ms() > b->unix_ms(); });
  // A handler that took long and has ended explains less than what is still so.
  std::stable_partition(records.begin(), records.end(),
                        [](const v1::FailureRecord* record) { return !record->hang().recovered(); });
  std::string text;
  if (records.empty()) {
    text = target.empty() ? "no failure is known\n"
                          : absl::StrCat("no failure of ", Printable(target), " is known\n");
    return absl::StrCat(text, FormatUnanswered(snapshots));
  }
  const v1::FailureRecord& newest = *records.front();
  text = absl::StrCat(PrintableLines(Report(newest)), "\n", LostActors(newest), "  ",
                      Age(newest, now_unix_ms), ", session ", ShortSession(newest.session()), "\n");
  std::vector<std::string> others;
  for (size_t i = 1; i < records.size() && i <= kOthersShownMax; ++i) {
    const v1::FailureEvent& event = records[i]->event();
    others.push_back(absl::StrCat(Member(event.mesh(), event.rank()), " ", Age(*records[i], now_unix_ms)));
  }
  if (!others.empty()) {
    const bool in_order = records[1]->unix_ms() <= newest.unix_ms();
    absl::StrAppend(&text, in_order ? "\nbefore that: " : "\nalso known: ", absl::StrJoin(others, ", "),
                    records.size() > kOthersShownMax + 1 ? ", ..." : "", "\n");
  }
  return absl::StrCat(text, FormatUnanswered(snapshots));
}

}  // namespace monarch::ctl
