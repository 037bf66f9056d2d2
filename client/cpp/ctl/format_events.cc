#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/failure_event.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"
#include "proto/failure_event_conversion.h"

namespace monarch::ctl {
namespace {

std::string Detail(const v1::WatchResponse& event) {
  if (!event.has_failure()) return Printable(event.reason());
  const absl::StatusOr<FailureEvent> failure = FromProto(event.failure());
  return failure.ok() ? Printable(failure->Summary()) : "its record is not readable";
}

}  // namespace

std::string FormatEvent(const v1::WatchResponse& event, absl::TimeZone zone) {
  std::string text;
  if (event.missed() > 0) {
    text = absl::StrCat(event.missed(), " events before this one are no longer kept\n");
  }
  const std::string line =
      absl::StrFormat("%s  %-8s  %-15s  %s",
                      absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(event.unix_ms()), zone),
                      ShortSession(event.session()), Printable(event.what()), Detail(event));
  return absl::StrCat(text, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
}

}  // namespace monarch::ctl
