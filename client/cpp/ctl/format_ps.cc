#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"

namespace monarch::ctl {
namespace {

using ProcKey = std::pair<uint64_t, uint32_t>;

ProcKey KeyOf(const v1::ProcAddress& address) { return {address.proc(), address.incarnation()}; }

std::string RankText(uint32_t rank, const std::string& label) {
  return label.empty() ? absl::StrCat(rank) : absl::StrCat(rank, " ", Printable(label));
}

void AddSession(const std::string& host, const v1::SessionInfo& session, Table* table) {
  std::map<ProcKey, int> actors;
  for (const v1::ActorInfo& actor : session.actors()) ++actors[KeyOf(actor.address().proc())];
  const std::string id = ShortSession(session.session());
  const std::string program = Printable(session.name());
  table->Add({host, absl::StrCat(session.client_pid()), "(client)", "", "running",
              absl::StrCat(actors[KeyOf(session.client())]), id, program});
  for (const v1::ProcInfo& proc : session.procs()) {
    table->Add({host, absl::StrCat(proc.pid()), Printable(proc.mesh()),
                RankText(proc.rank(), proc.rank_label()), Printable(proc.phase()),
                absl::StrCat(actors[KeyOf(proc.address())]), id, program});
  }
}

}  // namespace

std::string FormatPs(const std::vector<Snapshot>& snapshots) {
  Table table({"HOST", "PID", "MESH", "RANK", "STATE", "ACTORS", "SESSION", "PROGRAM"});
  bool answered = false;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.answer.ok()) continue;
    answered = true;
    for (const v1::SessionInfo& session : snapshot.tree.sessions()) {
      AddSession(Printable(snapshot.status.host_name()), session, &table);
    }
  }
  return absl::StrCat(answered ? table.ToString() : "", FormatUnanswered(snapshots));
}

}  // namespace monarch::ctl
