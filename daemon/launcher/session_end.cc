#include "daemon/launcher/session_end.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "daemon/launcher/leftovers.h"

namespace monarch {
namespace {

// Whether a descendant of this process, as listed, is one still.
std::function<bool(pid_t)> StillBelow(pid_t pid, const std::vector<ProcessStat>& processes) {
  const auto seen = std::find_if(processes.begin(), processes.end(),
                                 [pid](const ProcessStat& process) { return process.pid == pid; });
  return [parent = seen->parent](pid_t p) {
    const std::optional<ProcessStat> now = ReadProcessStat(p);
    // Its parent is as listed, or has ended meanwhile and left it to this sub-reaper.
    return now && (now->parent == parent || now->parent == getpid());
  };
}

}  // namespace

size_t ReapOrphans(const std::vector<pid_t>& workers) {
  const std::unordered_set<pid_t> known(workers.begin(), workers.end());
  size_t reaped = 0;
  for (const pid_t child : ListChildren()) {
    if (known.contains(child)) continue;
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG) == 0 && info.si_pid == child)
      ++reaped;
  }
  return reaped;
}

SessionEnd::SessionEnd(EventLoop* loop, Host* host, SessionCgroup* cgroup, StopLadderOptions options)
    : loop_(loop), host_(host), cgroup_(cgroup), ladder_(options) {}

SessionEnd::~SessionEnd() {
  if (timer_) loop_->Cancel(*timer_);
}

void SessionEnd::Begin(const std::string& reason, absl::Duration kill_after) {
  if (ladder_.Begin(loop_->Now(), kill_after)) TerminateOthers(host_->AskWorkers(reason, kill_after));
  Advance();
}

void SessionEnd::TerminateOthers(const std::vector<pid_t>& asked) {
  const std::vector<ProcessStat> processes = ListProcesses();
  for (const pid_t pid : DescendantsOf(getpid(), processes)) {
    if (std::find(asked.begin(), asked.end(), pid) == asked.end())
      SignalPinned(pid, SIGTERM, StillBelow(pid, processes));
  }
}

void SessionEnd::Advance() {
  if (!ladder_.begun() || ladder_.gone()) return;
  if (ladder_.ShouldSweep(loop_->Now(), host_->UnreapedWorkers().size())) {
    if (ladder_.Swept(loop_->Now(), Sweep())) {
      if (ladder_.gave_up()) LogError("launcher", "session ended with processes left that cannot be killed");
      return host_->OnSessionGone();
    }
  }
  Arm();
}

void SessionEnd::Arm() {
  if (timer_) loop_->Cancel(*timer_);
  timer_.reset();
  const std::optional<absl::Duration> at = ladder_.WakeAt();
  if (!at) return;
  timer_ = loop_->RunAfter(*at - loop_->Now(), [this] {
    timer_.reset();
    Advance();
  });
}

size_t SessionEnd::Sweep() {
  size_t found = SweepCgroup();
  const std::vector<ProcessStat> processes = ListProcesses();
  found += SweepDescendants(processes);
  const std::vector<pid_t> workers = host_->UnreapedWorkers();
  // What they handed down since the list was read is not in it.
  found += ReapOrphans(workers);
  // Last, and only once the cheap means find nothing: it reads the environment of every process of this user.
  if (found == 0) found = SweepMarked(processes);
  // Their status is still to be told; the next turn reaps them.
  if (found == 0) found = workers.size();
  // Busy: something entered between the looks.
  if (found == 0 && !cgroup_->Remove()) found = 1;
  return found;
}

size_t SessionEnd::SweepCgroup() {
  const std::vector<pid_t> members = cgroup_->Members();
  if (members.empty()) return 0;
  killed_.insert(members.begin(), members.end());
  if (!cgroup_->Kill()) {
    for (const pid_t pid : members) {
      KillPinned(pid, [this](pid_t p) {
        const std::vector<pid_t> now = cgroup_->Members();
        return std::find(now.begin(), now.end(), p) != now.end();
      });
    }
  }
  return members.size();
}

size_t SessionEnd::SweepDescendants(const std::vector<ProcessStat>& processes) {
  const std::vector<pid_t> found = DescendantsOf(getpid(), processes);
  for (const pid_t pid : found) {
    if (KillPinned(pid, StillBelow(pid, processes))) killed_.insert(pid);
  }
  return found.size();
}

size_t SessionEnd::SweepMarked(const std::vector<ProcessStat>& processes) {
  if (mark_.empty()) return 0;
  const std::vector<pid_t> found = MarkedProcesses(mark_, processes);
  for (const pid_t pid : found) {
    if (KillPinned(pid, [this](pid_t p) { return CarriesMark(p, mark_); })) killed_.insert(pid);
  }
  return found.size();
}

}  // namespace monarch
