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

// "train 3m12s waiting HUNG" of the actor of a process that has been at work for longest, of those that are
// hung if there are any; "": all are idle.
using AtWork = std::map<ProcKey, const v1::ActorActivity*>;

bool IsBefore(const v1::ActorActivity& a, const v1::ActorActivity& b) {
  return a.hung() != b.hung() ? a.hung() : a.age_ms() > b.age_ms();
}

AtWork OldestOf(const v1::GetTreeResponse& tree) {
  AtWork oldest;
  for (const v1::ActorActivity& one : tree.activities()) {
    const v1::ActorActivity*& entry = oldest[KeyOf(one.actor().proc())];
    if (entry == nullptr || IsBefore(one, *entry)) entry = &one;
  }
  return oldest;
}

std::string AtWorkText(const AtWork& at_work, const v1::ProcAddress& proc) {
  const auto found = at_work.find(KeyOf(proc));
  if (found == at_work.end()) return "";
  const v1::ActorActivity& one = *found->second;
  const std::string text = absl::StrCat(Printable(one.method()), " ", FormatAge(one.age_ms()));
  return absl::StrCat(text, one.state().empty() ? "" : " ", Printable(one.state()),
                      one.hung() ? " HUNG" : "");
}

void AddSession(const std::string& host, const v1::SessionInfo& session, const AtWork& at_work,
                Table* table) {
  std::map<ProcKey, int> actors;
  for (const v1::ActorInfo& actor : session.actors()) ++actors[KeyOf(actor.address().proc())];
  const std::string id = ShortSession(session.session());
  const std::string program = Printable(session.name());
  table->Add({host, absl::StrCat(session.client_pid()), "(client)", "", "running",
              absl::StrCat(actors[KeyOf(session.client())]), AtWorkText(at_work, session.client()), id,
              program});
  for (const v1::ProcInfo& proc : session.procs()) {
    table->Add({host, absl::StrCat(proc.pid()), Printable(proc.mesh()),
                RankText(proc.rank(), proc.rank_label()), Printable(proc.phase()),
                absl::StrCat(actors[KeyOf(proc.address())]), AtWorkText(at_work, proc.address()), id,
                program});
  }
}

}  // namespace

std::string FormatPs(const std::vector<Snapshot>& snapshots) {
  Table table({"HOST", "PID", "MESH", "RANK", "STATE", "ACTORS", "AT WORK", "SESSION", "PROGRAM"});
  bool answered = false;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.answer.ok()) continue;
    answered = true;
    const AtWork at_work = OldestOf(snapshot.tree);
    for (const v1::SessionInfo& session : snapshot.tree.sessions()) {
      AddSession(Printable(snapshot.status.host_name()), session, at_work, &table);
    }
  }
  return absl::StrCat(answered ? table.ToString() : "", FormatUnanswered(snapshots));
}

}  // namespace monarch::ctl
