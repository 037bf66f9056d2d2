#include "daemon/activity_probe.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "daemon/launcher/process_stat.h"
#include "daemon/native_connection.h"
#include "message/doorbell.h"
#include "message/utf8.h"

namespace monarch {
namespace {

constexpr absl::Duration kWindow = absl::Milliseconds(200);
constexpr size_t kChannelBytesMax = 64;

// Counts of the kernel's scheduler, in nanoseconds.
struct ThreadTimes {
  int64_t ran = 0;
  int64_t waited = 0;
};

// The thread number is the process's word: it names no thread of another, for the path is below the process.
std::string TaskPath(int64_t pid, int64_t tid, const char* file) {
  return absl::StrCat("/proc/", pid, "/task/", tid, "/", file);
}

std::optional<ThreadTimes> ReadTimes(int64_t pid, int64_t tid) {
  std::ifstream in(TaskPath(pid, tid, "schedstat"));
  ThreadTimes times;
  if (!(in >> times.ran >> times.waited)) return std::nullopt;
  return times;
}

std::string ReadWaitChannel(int64_t pid, int64_t tid) {
  std::ifstream in(TaskPath(pid, tid, "wchan"));
  std::string name;
  std::getline(in, name);
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
  return is_name && name != "0" ? name.substr(0, kChannelBytesMax) : "";
}

absl::Duration AgeOf(int64_t since_ns) {
  return std::max(SystemClock().Now() - absl::Nanoseconds(since_ns), absl::ZeroDuration());
}

// One worker between the two looks.
struct Seen {
  struct Old {
    Activity activity;
    std::optional<ThreadTimes> before;
  };
  ProcAddress proc;
  int64_t pid = 0;
  Doorbell pages;
  std::optional<ThreadTimes> main_before;
  std::vector<Old> old;
};

void AddFound(const Seen& seen, const Activity& activity, ActivityState state,
              std::vector<ActorActivity>* out) {
  ActorActivity found;
  found.actor = ActorAddress{seen.proc, activity.actor};
  found.pid = seen.pid;
  found.method = ToUtf8(activity.method);
  found.began = absl::Nanoseconds(activity.began_ns);
  found.age = AgeOf(activity.began_ns);
  found.state = state;
  if (state == ActivityState::kWaiting) found.wait_channel = ReadWaitChannel(seen.pid, activity.tid);
  out->push_back(std::move(found));
}

void LookAgain(const Seen& seen, absl::Duration window, std::vector<ActorActivity>* out) {
  ActivityFacts facts;
  facts.window = window;
  if (const auto stat = ReadProcessStat(static_cast<pid_t>(seen.pid))) facts.process_state = stat->state;
  if (const int64_t asked_ns = seen.pages.interpreter_asked_ns(); asked_ns != 0)
    facts.interpreter_asked = AgeOf(asked_ns);
  const std::optional<ThreadTimes> main = ReadTimes(seen.pid, seen.pid);
  const std::vector<Activity> now = seen.pages.Activities();
  for (const Seen::Old& old : seen.old) {
    const bool goes_on = std::any_of(now.begin(), now.end(), [&](const Activity& activity) {
      return activity.actor == old.activity.actor && activity.began_ns == old.activity.began_ns;
    });
    if (!goes_on) continue;
    facts.ran = facts.waited_for_cpu = std::nullopt;
    const std::optional<ThreadTimes> after = ReadTimes(seen.pid, old.activity.tid);
    if (after && old.before) {
      facts.ran = absl::Nanoseconds(after->ran - old.before->ran);
      int64_t waited = after->waited - old.before->waited;
      if (main && seen.main_before) waited = std::max(waited, main->waited - seen.main_before->waited);
      facts.waited_for_cpu = absl::Nanoseconds(waited);
    }
    AddFound(seen, old.activity, StateOf(facts), out);
  }
}

// Nothing for one that is idle.
std::optional<Seen> Look(const ProcRecord& record, absl::Duration old, std::vector<ActorActivity>* out) {
  absl::StatusOr<Doorbell> pages = PagesOf(record);
  if (!pages.ok()) return std::nullopt;
  Seen seen{record.description.address, record.description.pid, *std::move(pages), std::nullopt, {}};
  for (Activity& activity : seen.pages.Activities()) {
    if (activity.began_ns == 0) continue;
    if (AgeOf(activity.began_ns) < old) {
      AddFound(seen, activity, ActivityState::kUnknown, out);
    } else {
      seen.old.push_back({std::move(activity), std::nullopt});
    }
  }
  if (seen.old.empty()) return std::nullopt;
  for (Seen::Old& one : seen.old) one.before = ReadTimes(seen.pid, one.activity.tid);
  seen.main_before = ReadTimes(seen.pid, seen.pid);
  if (record.connection) record.connection->Answer(0, ControlType::kAskInterpreter);
  return seen;
}

}  // namespace

absl::StatusOr<Doorbell> PagesOf(const ProcRecord& record) {
  if (!record.alive() || !record.introduced())
    return absl::FailedPreconditionError("activities: the process is not there");
  MONARCH_ASSIGN_OR_RETURN(ScopedFd fd, record.shared.doorbell.Dup());
  return Doorbell::AttachPages(std::move(fd));
}

void ProbeActivities(EventLoop* loop, const std::vector<const ProcRecord*>& records, absl::Duration old,
                     absl::AnyInvocable<void(std::vector<ActorActivity>)> done) {
  std::vector<ActorActivity> found;
  auto seen = std::make_shared<std::vector<Seen>>();
  for (const ProcRecord* record : records) {
    if (std::optional<Seen> one = Look(*record, old, &found)) seen->push_back(*std::move(one));
  }
  if (seen->empty()) return done(std::move(found));
  loop->RunAfter(
      kWindow, [loop, seen, began = loop->Now(), found = std::move(found), done = std::move(done)]() mutable {
        for (const Seen& one : *seen) LookAgain(one, loop->Now() - began, &found);
        done(std::move(found));
      });
}

}  // namespace monarch
