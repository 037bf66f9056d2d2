#include "client/cpp/ctl/stacks.h"

#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/target.h"

namespace monarch::ctl {
namespace {

using ProcKey = std::tuple<std::string, uint64_t, uint32_t>;

ProcKey KeyOf(const v1::ProcAddress& address) {
  return {address.host(), address.proc(), address.incarnation()};
}

// The processes with an actor that is meant.
std::set<ProcKey> ProcsOfActors(const Target& target, const v1::SessionInfo& session) {
  std::set<ProcKey> procs;
  for (const v1::ActorInfo& actor : session.actors()) {
    if (target.IsMember(actor.mesh(), actor.rank())) procs.insert(KeyOf(actor.address().proc()));
  }
  return procs;
}

std::string NameOf(const v1::SessionInfo& session, const v1::ActorAddress& address) {
  for (const v1::ActorInfo& actor : session.actors()) {
    if (KeyOf(actor.address().proc()) == KeyOf(address.proc()) && actor.address().actor() == address.actor())
      return absl::StrCat(actor.mesh(), ":", actor.rank());
  }
  return "actor";
}

std::vector<std::string> AtWork(const v1::GetTreeResponse& tree, const v1::SessionInfo& session,
                                const v1::ProcAddress& proc) {
  std::vector<std::string> lines;
  for (const v1::ActorActivity& one : tree.activities()) {
    if (KeyOf(one.actor().proc()) != KeyOf(proc)) continue;
    lines.push_back(absl::StrCat(NameOf(session, one.actor()), " ", one.method(), " ",
                                 FormatAge(one.age_ms()), one.state().empty() ? "" : " ", one.state(),
                                 one.hung() ? " HUNG" : ""));
  }
  return lines;
}

}  // namespace

std::vector<ProcessStacks> FindProcesses(const std::string& text, const std::vector<Snapshot>& snapshots) {
  const Target target = ParseTarget(text);
  std::vector<ProcessStacks> found;
  for (const Snapshot& snapshot : snapshots) {
    for (const v1::SessionInfo& session : snapshot.tree.sessions()) {
      const std::set<ProcKey> with_actor = ProcsOfActors(target, session);
      const auto add = [&](std::string what, int64_t pid, const v1::ProcAddress& proc, bool is_named) {
        const bool is_meant =
            text.empty() || is_named || with_actor.contains(KeyOf(proc)) || target.pid == pid;
        if (!is_meant || pid <= 0) return;
        found.push_back({.what = std::move(what),
                         .pid = pid,
                         .at_work = AtWork(snapshot.tree, session, proc),
                         .native_answer = {},
                         .native = {},
                         .python_answer = {},
                         .python = {}});
      };
      add(absl::StrCat("client ", session.name()), session.client_pid(), session.client(), false);
      for (const v1::ProcInfo& proc : session.procs()) {
        // One of another host has its number there.
        if (proc.address().host() != session.client().host()) continue;
        add(absl::StrCat(proc.mesh(), ":", proc.rank()), proc.pid(), proc.address(),
            target.IsMember(proc.mesh(), proc.rank()));
      }
    }
  }
  return found;
}

void ReadStacks(ProcessStacks* process, absl::Duration timeout) {
  if (timeout <= absl::ZeroDuration()) {
    process->native_answer = absl::DeadlineExceededError("no time was left for it; see --timeout");
    return;
  }
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  const auto pid = static_cast<pid_t>(process->pid);
  const auto frozen = FrozenProcess::Freeze(pid, timeout / 2);
  process->native_answer = frozen.status();
  if (!frozen.ok()) return;
  process->native = (*frozen)->Stacks();
  if (!IsPython(pid)) return;
  auto python = PythonStacks(pid, deadline - clock.Now());
  process->python_answer = python.status();
  if (python.ok()) process->python = *std::move(python);
}

}  // namespace monarch::ctl
