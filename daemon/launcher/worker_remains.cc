#include "daemon/launcher/worker_remains.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "base/pidfd.h"
#include "daemon/launcher/leftovers.h"
#include "daemon/launcher/session_end.h"

namespace monarch {

WorkerRemains::WorkerRemains(EventLoop* loop, Host* host, SessionCgroup* cgroup, WorkerRemainsOptions options)
    : loop_(loop), host_(host), cgroup_(cgroup), options_(options) {}

WorkerRemains::~WorkerRemains() {
  if (timer_) loop_->Cancel(*timer_);
  for (const auto& [pid, pidfd] : watched_) loop_->Unwatch(pidfd.get());
}

void WorkerRemains::Add(const ProcAddress& proc) {
  dead_[ProcMark(proc)] = {proc, loop_->Now() + options_.give_up_after};
  LookSoon(absl::ZeroDuration());
}

void WorkerRemains::LookSoon(absl::Duration delay) {
  const absl::Duration at = std::max(loop_->Now() + delay, last_look_ + options_.look_interval);
  if (timer_) {
    if (look_at_ <= at) return;
    loop_->Cancel(*timer_);
  }
  look_at_ = at;
  timer_ = loop_->RunAfter(at - loop_->Now(), [this] {
    timer_.reset();
    Look();
  });
}

void WorkerRemains::Look() {
  last_look_ = loop_->Now();
  for (const auto& [mark, dead] : dead_) cgroup_->KillLeaf(dead.proc);
  // Adopted ones that have ended would be found for ever.
  ReapOrphans(host_->UnreapedWorkers());
  const Found found = Find();
  KillAndWatch(found);
  DropFinished(found);
  // The end of what is watched brings the next look; the timer is for what tells of nothing, and for giving
  // up.
  if (dead_.empty()) return;
  const bool silent = watched_.empty() || found.unsure;
  LookSoon(silent ? options_.look_interval : options_.give_up_after);
}

WorkerRemains::Found WorkerRemains::Find() const {
  Found found;
  FindAdopted(&found);
  for (const auto& [mark, dead] : dead_) {
    for (const pid_t pid : cgroup_->LeafMembers(dead.proc)) found.whose.emplace(pid, mark);
  }
  return found;
}

void WorkerRemains::FindAdopted(Found* found) const {
  const std::vector<pid_t> workers = host_->UnreapedWorkers();
  const std::unordered_set<pid_t> known(workers.begin(), workers.end());
  std::unordered_set<pid_t> adopted;
  for (const pid_t child : ListChildren()) {
    if (!known.contains(child)) adopted.insert(child);
  }
  // All that a dead worker left hangs below what was adopted from it.
  if (adopted.empty()) return;
  const std::vector<ProcessStat> processes = ListProcesses();
  for (const ProcessStat& process : processes) {
    if (process.parent != getpid() || known.contains(process.pid)) continue;
    // What has ended since, or come since, shows that the two lists are not of one moment: something may be
    // in neither.
    if (IsDead(process) || !adopted.contains(process.pid)) found->unsure = true;
  }
  for (const pid_t root : adopted) FindBelow(root, processes, found);
}

void WorkerRemains::FindBelow(pid_t root, const std::vector<ProcessStat>& processes, Found* found) const {
  // One that has cleared its own environment may have started others before.
  std::vector<pid_t> tree = DescendantsOf(root, processes);
  tree.insert(tree.begin(), root);
  for (const pid_t pid : tree) {
    const std::optional<std::string> mark = Judge(pid);
    if (!mark) found->unsure = true;
    if (!mark || mark->empty()) continue;
    found->whose.emplace(pid, *mark);
    for (const pid_t below : DescendantsOf(pid, processes)) found->whose.emplace(below, *mark);
    if (pid == root) return;
  }
}

std::optional<std::string> WorkerRemains::Judge(pid_t pid) const {
  const std::optional<std::string> environment = ReadEnvironment(pid);
  if (!environment) return std::nullopt;
  // Another session's process numbers, below a worker that is a client itself, mean others.
  if (!HoldsEntry(*environment, session_mark_)) return std::string();
  std::string mark = EntryStartingWith(*environment, kProcMarkStart);
  return dead_.contains(mark) ? mark : std::string();
}

void WorkerRemains::KillAndWatch(const Found& found) {
  std::map<pid_t, ScopedFd> pinned;
  for (const auto& [pid, mark] : found.whose) {
    if (watched_.contains(pid)) continue;
    if (auto pidfd = OpenPidfd(pid); pidfd.ok()) pinned.emplace(pid, *std::move(pidfd));
  }
  if (pinned.empty()) return;
  // Only what is still found once it is pinned: a number may have gone to another process before.
  const Found again = Find();
  for (auto& [pid, pidfd] : pinned) {
    if (!again.whose.contains(pid)) continue;
    if (syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0) != 0) continue;
    const pid_t ended = pid;
    if (!loop_->WatchFd(pidfd.get(), EPOLLIN, [this, ended](uint32_t) { OnEnded(ended); }).ok()) continue;
    watched_.emplace(pid, std::move(pidfd));
    ++killed_;
  }
}

void WorkerRemains::OnEnded(pid_t pid) {
  const auto found = watched_.find(pid);
  loop_->Unwatch(found->second.get());
  watched_.erase(found);
  LookSoon(absl::ZeroDuration());
}

void WorkerRemains::DropFinished(const Found& found) {
  std::unordered_set<std::string> busy;
  for (const auto& [pid, mark] : found.whose) busy.insert(mark);
  std::erase_if(dead_, [&](const auto& entry) {
    const auto& [mark, dead] = entry;
    const bool left = busy.contains(mark) || !cgroup_->RemoveLeaf(dead.proc);
    if ((left || found.unsure) && loop_->Now() < dead.give_up_at) return false;
    if (left) {
      LogError("launcher", "a dead worker's processes cannot be killed").With("proc", dead.proc.ToString());
    }
    return true;
  });
}

}  // namespace monarch
