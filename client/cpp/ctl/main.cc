#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/cpp/ctl/command_line.h"
#include "client/cpp/ctl/daemon_finder.h"
#include "client/cpp/ctl/daemon_query.h"
#include "client/cpp/ctl/ended_daemons.h"
#include "client/cpp/ctl/events.h"
#include "client/cpp/ctl/exit_code.h"
#include "client/cpp/ctl/failures.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/format_stack.h"
#include "client/cpp/ctl/session_stop.h"
#include "client/cpp/ctl/stacks.h"

namespace monarch::ctl {
namespace {

JsonPart PartFor(Command command) {
  switch (command) {
    case Command::kStatus:
    case Command::kDoctor:
    case Command::kEvents:
      return JsonPart::kNone;
    case Command::kSessions:
    case Command::kPs:
    case Command::kTree:
    case Command::kStack:
    case Command::kStop:
      return JsonPart::kTree;
    case Command::kWhy:
      return JsonPart::kFailures;
  }
  return JsonPart::kNone;
}

std::string Format(const CommandLine& line, const std::vector<Snapshot>& snapshots) {
  if (line.json) return FormatJson(snapshots, PartFor(line.command));
  switch (line.command) {
    case Command::kStatus:
      return FormatStatus(snapshots);
    case Command::kDoctor:
      return FormatDoctor(snapshots);
    case Command::kSessions:
      return FormatSessions(snapshots);
    case Command::kPs:
      return FormatPs(snapshots);
    case Command::kTree:
      return FormatTree(snapshots);
    case Command::kWhy:
      return FormatWhy(snapshots, line.target, absl::ToUnixMillis(WallTime()));
    case Command::kEvents:
    case Command::kStack:
    case Command::kStop:
      break;  // They print what they do.
  }
  return "";
}

// Where daemons that have ended are looked for; one with an address is known by that.
std::vector<std::string> FoldersFor(const CommandLine& line) {
  return line.address.empty() ? PrivateFolders(FinderOptions::FromEnvironment()) : std::vector<std::string>();
}

int NoDaemon() {
  std::fputs("monarchctl: no daemon is running for this user\n", stderr);
  return kExitNothing;
}

int Events(const CommandLine& line, const std::vector<DaemonPlace>& places) {
  if (places.empty()) return NoDaemon();
  const absl::TimeZone zone = absl::LocalTimeZone();
  const auto print = [&](const DaemonEvent& one) {
    std::fputs((line.json ? FormatEventJson(*one.place, one.event) : FormatEvent(one.event, zone)).c_str(),
               stdout);
    std::fflush(stdout);
  };
  const absl::Time oldest = WallTime() - line.since;
  KeptEvents kept = ReadEvents(places, line.timeout);
  for (const DaemonEvent& one : kept.events) {
    if (absl::FromUnixMillis(one.event.unix_ms()) >= oldest) print(one);
  }
  if (line.follow) FollowEvents(&kept, print);
  std::fputs(FormatUnanswered(kept.answers).c_str(), stderr);
  return ExitCodeFor(kept.answers);
}

// `deadline`: of all of them together.
int Stack(const CommandLine& line, const std::vector<Snapshot>& snapshots, absl::Duration deadline) {
  // How a traced thread's stop is waited for.
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  std::vector<ProcessStacks> processes = FindProcesses(line.target, snapshots);
  int code = ExitCodeFor(snapshots);
  for (ProcessStacks& process : processes) {
    ReadStacks(&process, deadline - SystemClock().Now());
    if (!process.native_answer.ok() || !process.python_answer.ok())
      code = code == kExitOk ? kExitUnread : code;
  }
  std::fputs((line.json ? FormatStacksJson(processes) : FormatStacks(processes)).c_str(), stdout);
  std::fputs(FormatUnanswered(snapshots).c_str(), stderr);
  if (!processes.empty()) return code;
  std::fprintf(stderr, "monarchctl: no process %s%sis known\n", line.target.c_str(),
               line.target.empty() ? "" : " ");
  return code == kExitOk ? kExitUnknown : code;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "monarchctl: %s\n", std::string(status.message()).c_str());
  if (absl::IsInvalidArgument(status)) return kExitUsage;
  if (absl::IsNotFound(status)) return kExitUnknown;
  return absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status) ? kExitSilent : kExitRefused;
}

int Stop(const CommandLine& line, const std::vector<Snapshot>& snapshots) {
  const absl::StatusOr<FoundSession> found = FindSession(line.target, snapshots);
  if (!found.ok()) {
    std::fputs(FormatUnanswered(snapshots).c_str(), stderr);
    const int code = Fail(found.status());
    // One that does not answer may have it.
    return code == kExitUnknown && ExitCodeFor(snapshots) != kExitOk ? ExitCodeFor(snapshots) : code;
  }
  const absl::StatusOr<v1::StopSessionResponse> stopped = StopSession(*found, line.grace);
  if (!stopped.ok()) return Fail(stopped.status());
  std::fputs((line.json ? FormatStoppedJson(*found->daemon, *found->session, *stopped)
                        : FormatStopped(*found->session, *stopped))
                 .c_str(),
             stdout);
  return kExitOk;
}

int Main(int argc, const char* const* argv) {
  const Parsed parsed = ParseCommandLine(argc, argv);
  if (!parsed.line.has_value()) return parsed.exit_code;
  const CommandLine& line = *parsed.line;
  const absl::Duration deadline = SystemClock().Now() + line.timeout;

  std::vector<DaemonPlace> places;
  if (line.address.empty()) {
    places = FindDaemons(FinderOptions::FromEnvironment());
  } else {
    absl::StatusOr<DaemonPlace> place = PlaceFromAddress(line.address);
    if (!place.ok()) {
      std::fprintf(stderr, "monarchctl: %s\n", std::string(place.status().message()).c_str());
      return kExitUsage;
    }
    places.push_back(*place);
  }
  if (line.command == Command::kEvents) return Events(line, places);
  QueryOptions options;
  options.timeout = line.timeout;
  options.with_tree = PartFor(line.command) == JsonPart::kTree;
  options.with_failures = line.command == Command::kWhy;
  std::vector<Snapshot> snapshots = QueryDaemons(places, options);
  if (line.command == Command::kWhy) AddEndedDaemons(FoldersFor(line), &snapshots);
  if (snapshots.empty() && !line.json) return NoDaemon();
  if (line.command == Command::kStop) return Stop(line, snapshots);
  if (line.command == Command::kStack) return Stack(line, snapshots, deadline);
  bool found = true;
  if (line.command == Command::kWhy) found = KeepFailuresOf(line.target, &snapshots);
  std::fputs(Format(line, snapshots).c_str(), stdout);
  const int code = ExitCodeFor(snapshots);
  return code == kExitOk && !found ? kExitUnknown : code;
}

}  // namespace
}  // namespace monarch::ctl

int main(int argc, char** argv) { return monarch::ctl::Main(argc, argv); }
