#include "daemon/launcher/obituaries.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/launcher/process_stat.h"
#include "message/lifeline.h"

namespace monarch {

absl::StatusOr<std::unique_ptr<Obituaries>> Obituaries::Create() {
  MONARCH_ASSIGN_OR_RETURN(DeathBoard board, DeathBoard::Create());
  return std::unique_ptr<Obituaries>(new Obituaries(std::move(board)));
}

absl::Status Obituaries::Add(const ProcAddress& proc, ScopedFd doorbell) {
  MONARCH_ASSIGN_OR_RETURN(Doorbell pages, Doorbell::AttachPages(std::move(doorbell)));
  MutexLock lock(mu_);
  if (!doorbells_.try_emplace(proc, std::move(pages)).second) {
    return absl::AlreadyExistsError(absl::StrCat("doorbell of ", proc.ToString()));
  }
  links_.Add(proc);
  return absl::OkStatus();
}

void Obituaries::Link(const ProcAddress& a, uint32_t bit_in_a, const ProcAddress& b, uint32_t bit_in_b) {
  MutexLock lock(mu_);
  links_.Link(a, bit_in_a, b, bit_in_b);
}

void Obituaries::SetStopping(const ProcAddress& proc) {
  MutexLock lock(mu_);
  links_.SetStopping(proc);
}

void Obituaries::SetAllStopping() {
  MutexLock lock(mu_);
  links_.SetAllStopping();
}

void Obituaries::Watch(uint64_t key, const ProcAddress& proc, pid_t pid) {
  MutexLock lock(mu_);
  watched_[key] = {proc, pid};
}

void Obituaries::Unwatch(uint64_t key) {
  MutexLock lock(mu_);
  watched_.erase(key);
}

void Obituaries::LifelineFired(uint64_t key) {
  ProcAddress proc;
  std::optional<ProcessStat> stat;
  {
    // Held while the number is looked up, so that nobody reaps it meanwhile.
    MutexLock lock(mu_);
    const auto found = watched_.find(key);
    if (found == watched_.end()) return;
    proc = found->second.proc;
    stat = ReadProcessStat(found->second.pid);
  }
  if (!stat) return;
  const ExitStatus cause = ExitStatus::FromWaitStatus(stat->exit_code);
  Died(proc, cause.known() ? cause : Announced(proc));
}

ExitStatus Obituaries::Announced(const ProcAddress& proc) {
  MutexLock lock(mu_);
  const auto found = doorbells_.find(proc);
  ExitStatus status;
  if (found != doorbells_.end()) status.signal = AbandonedBy(found->second.lifeline_page());
  return status;
}

void Obituaries::Died(const ProcAddress& proc, const ExitStatus& cause) {
  // Held until all are told: whoever is refused as the second reports to the daemon next, whose word comes
  // last.
  MutexLock lock(mu_);
  const std::optional<std::vector<DeathLinks::Ring>> rings = links_.OnDeath(proc, cause);
  if (!rings) return;
  board_.Write(proc, cause.ToWaitStatus());
  for (const DeathLinks::Ring& ring : *rings) {
    const auto found = doorbells_.find(ring.proc);
    if (found != doorbells_.end()) found->second.TellPeerDead(ring.bit);
  }
}

void Obituaries::Forget(const ProcAddress& proc) {
  MutexLock lock(mu_);
  links_.Forget(proc);
  doorbells_.erase(proc);
}

}  // namespace monarch
