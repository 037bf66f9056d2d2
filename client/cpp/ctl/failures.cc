#include "client/cpp/ctl/failures.h"

#include <map>
#include <tuple>
#include <utility>

#include "client/cpp/ctl/target.h"

namespace monarch::ctl {
namespace {

using ProcKey = std::tuple<std::string, uint64_t, uint32_t>;

ProcKey KeyOf(const v1::FailureEvent& event) {
  const v1::ProcAddress& proc = event.actor().proc();
  return {proc.host(), proc.proc(), proc.incarnation()};
}

bool IsMeant(const Target& target, const v1::FailureEvent& event) {
  if (target.IsMember(event.mesh(), event.rank()) || (target.pid.has_value() && event.pid() == *target.pid))
    return true;
  for (const v1::FailureEvent& cause : event.cause()) {
    if (IsMeant(target, cause)) return true;
  }
  return false;
}

bool IsMeant(const Target& target, const v1::FailureRecord& record) {
  for (const v1::LostActor& actor : record.lost_actors()) {
    if (target.IsMember(actor.mesh(), actor.rank())) return true;
  }
  return IsMeant(target, record.event());
}

// An owner was told of a death before its last words were known.
void CompleteCauses(const std::map<ProcKey, const v1::FailureEvent*>& deaths, v1::FailureEvent* event) {
  for (v1::FailureEvent& cause : *event->mutable_cause()) {
    CompleteCauses(deaths, &cause);
    const auto found = deaths.find(KeyOf(cause));
    const bool of_a_process =
        cause.kind() == v1::FAILURE_KIND_SIGNALLED || cause.kind() == v1::FAILURE_KIND_EXITED;
    if (!of_a_process || found == deaths.end()) continue;
    cause.set_kind(found->second->kind());
    cause.set_code(found->second->code());
    cause.set_reason(found->second->reason());
    cause.set_stderr_tail(found->second->stderr_tail());
    cause.set_backtrace(found->second->backtrace());
  }
}

}  // namespace

bool KeepFailuresOf(const std::string& target, std::vector<Snapshot>* snapshots) {
  const Target meant = ParseTarget(target);
  bool any = false;
  for (Snapshot& snapshot : *snapshots) {
    const v1::GetFailuresResponse all = std::exchange(snapshot.failures, {});
    std::map<ProcKey, const v1::FailureEvent*> deaths;
    for (const v1::FailureRecord& record : all.failures()) {
      // Actor 0: of the process itself.
      if (record.event().actor().actor() == 0) deaths.emplace(KeyOf(record.event()), &record.event());
    }
    for (const v1::FailureRecord& record : all.failures()) {
      if (!target.empty() && !IsMeant(meant, record)) continue;
      any = true;
      v1::FailureRecord* kept = snapshot.failures.add_failures();
      *kept = record;
      CompleteCauses(deaths, kept->mutable_event());
    }
  }
  return any;
}

}  // namespace monarch::ctl
