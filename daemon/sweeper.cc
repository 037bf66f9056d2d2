#include "daemon/sweeper.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "daemon/launcher/leftovers.h"
#include "daemon/launcher/process_stat.h"

namespace monarch {
namespace {

// A killed process of a few GiB needs a while to be torn down; then nothing more can be done from here.
constexpr int kRoundsMax = 400;
constexpr absl::Duration kRoundPause = absl::Milliseconds(5);
}  // namespace

void ProcessSweeper::Sweep(const SessionId& session, absl::AnyInvocable<void(int)> done) {
  loop_->Post([this, alive = std::weak_ptr<bool>(alive_), session, done = std::move(done)]() mutable {
    if (alive.lock()) Round(session, kRoundsMax, 0, std::move(done));
  });
}

void ProcessSweeper::Round(SessionId session, int rounds_left, int killed,
                           absl::AnyInvocable<void(int)> done) {
  const std::string mark = absl::StrCat(kMark, session.ToHex());
  SessionCgroup cgroup = SessionCgroup::Find(session);
  int found = KillOnce(mark, &killed) + KillMembers(cgroup, &killed);
  // Busy: something entered between the looks.
  if (found == 0 && !cgroup.Remove()) found = 1;
  if (found == 0 || rounds_left == 0) {
    if (found != 0)
      LogError("daemon", "processes survive their session").With("mark", mark).With("count", found);
    return done(killed);
  }
  loop_->RunAfter(kRoundPause, [this, alive = std::weak_ptr<bool>(alive_), session, rounds_left, killed,
                                done = std::move(done)]() mutable {
    if (alive.lock()) Round(session, rounds_left - 1, killed, std::move(done));
  });
}

int ProcessSweeper::KillMembers(const SessionCgroup& cgroup, int* killed) {
  const std::vector<pid_t> members = cgroup.Members();
  if (members.empty() || cgroup.Kill()) return static_cast<int>(members.size());
  for (const pid_t member : members) {
    const auto wanted = [&](pid_t pid) {
      const std::vector<pid_t> now = cgroup.Members();
      return std::find(now.begin(), now.end(), pid) != now.end();
    };
    if (KillPinned(member, wanted)) ++*killed;
  }
  return static_cast<int>(members.size());
}

int ProcessSweeper::KillOnce(const std::string& mark, int* killed) {
  const pid_t self = getpid();
  int found = 0;
  for (const ProcessStat& process : ListProcesses()) {
    if (process.pid == self || known_.contains(process.pid)) continue;
    const bool inherited = process.parent == self;
    if (!inherited && (process.state == 'Z' || !CarriesMark(process.pid, mark))) continue;
    ++found;
    const auto wanted = [&](pid_t pid) { return inherited || CarriesMark(pid, mark); };
    if (process.state != 'Z' && KillPinned(process.pid, wanted)) ++*killed;
    if (inherited) {
      siginfo_t info;
      waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG);
    }
  }
  return found;
}

}  // namespace monarch
