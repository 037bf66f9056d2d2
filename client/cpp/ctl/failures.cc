#include "client/cpp/ctl/failures.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace monarch::ctl {
namespace {

using ProcKey = std::tuple<std::string, uint64_t, uint32_t>;

ProcKey KeyOf(const v1::FailureEvent& event) {
  const v1::ProcAddress& proc = event.actor().proc();
  return {proc.host(), proc.proc(), proc.incarnation()};
}

// What the operator named. Threading: as its fields.
struct Target {
  std::string name;              // all of it
  std::string mesh;              // without a rank
  std::optional<uint32_t> rank;  // given
  std::optional<int64_t> pid;    // if it is a number

  bool IsMember(const std::string& of, uint32_t at) const {
    return of == name || (rank.has_value() && of == mesh && at == *rank);
  }
  bool IsMeant(const v1::FailureEvent& event) const {
    if (IsMember(event.mesh(), event.rank()) || (pid.has_value() && event.pid() == *pid)) return true;
    for (const v1::FailureEvent& cause : event.cause()) {
      if (IsMeant(cause)) return true;
    }
    return false;
  }
  bool IsMeant(const v1::FailureRecord& record) const {
    for (const v1::LostActor& actor : record.lost_actors()) {
      if (IsMember(actor.mesh(), actor.rank())) return true;
    }
    return IsMeant(record.event());
  }
};

Target ParseTarget(const std::string& text) {
  Target target;
  target.name = text;
  int64_t pid = 0;
  if (absl::SimpleAtoi(text, &pid)) target.pid = pid;
  std::string rest = text;
  if (absl::EndsWith(rest, "]")) rest.pop_back();
  const size_t at = rest.find_last_of(rest.size() < text.size() ? '[' : ':');
  uint32_t rank = 0;
  if (at != std::string::npos && absl::SimpleAtoi(rest.substr(at + 1), &rank)) {
    target.mesh = rest.substr(0, at);
    target.rank = rank;
  }
  return target;
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
      if (!target.empty() && !meant.IsMeant(record)) continue;
      any = true;
      v1::FailureRecord* kept = snapshot.failures.add_failures();
      *kept = record;
      CompleteCauses(deaths, kept->mutable_event());
    }
  }
  return any;
}

}  // namespace monarch::ctl
