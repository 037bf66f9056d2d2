#include "absl/strings/str_cat.h"
#include "base/failure_event.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"
#include "proto/failure_event_conversion.h"

namespace monarch::ctl {

std::string FormatSessions(const std::vector<Snapshot>& snapshots) {
  Table table({"SESSION", "STATE", "AGE", "UID", "CLIENT", "PROCS", "ACTORS", "PROGRAM", "HOST", "ADDRESS"});
  bool answered = false;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.answer.ok()) continue;
    answered = true;
    for (const v1::SessionInfo& session : snapshot.tree.sessions()) {
      table.Add({ShortSession(session.session()), Printable(session.state()), FormatAge(session.age_ms()),
                 absl::StrCat(session.uid()),
                 session.guest() ? "other host" : absl::StrCat("pid ", session.client_pid()),
                 absl::StrCat(session.procs_size()), absl::StrCat(session.actors_size()),
                 Printable(session.name()), Printable(snapshot.status.host_name()),
                 Printable(snapshot.place.Address())});
    }
  }
  return absl::StrCat(answered ? table.ToString() : "", FormatUnanswered(snapshots));
}

std::string FormatStopped(const v1::SessionInfo& session, const v1::StopSessionResponse& stopped) {
  std::string late;
  int killed = 0;
  for (const v1::FailureEvent& end : stopped.ends()) {
    if (end.code() == 0) continue;
    ++killed;
    const absl::StatusOr<FailureEvent> event = FromProto(end);
    absl::StrAppend(&late, "  ", Printable(event.ok() ? event->Summary() : event.status().ToString()), "\n");
  }
  const int all = stopped.ends_size();
  return absl::StrCat("session ", ShortSession(session.session()), " of ", Printable(session.name()),
                      " has ended: ", all, all == 1 ? " process" : " processes", ", ", all - killed, " by ",
                      all - killed == 1 ? "itself" : "themselves", "\n", late);
}

}  // namespace monarch::ctl
