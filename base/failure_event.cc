#include "base/failure_event.h"

#include <csignal>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace monarch {
namespace {

// Causes shown below each other. Events arrive from other processes, and the report recurses.
constexpr int kCausesShownMax = 16;

std::string SignalName(int signal) {
  if (const char* name = sigabbrev_np(signal); name != nullptr) return absl::StrCat("SIG", name);
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return absl::StrCat("SIGRTMIN+", signal - SIGRTMIN);
  return "unknown";
}

// What happened, without the reason.
std::string Ending(const FailureEvent& event) {
  switch (event.kind) {
    case FailureKind::kUnspecified:
      return "ended for an unknown cause";
    case FailureKind::kException:
      return "raised an exception";
    case FailureKind::kExited:
      return absl::StrCat("exited with status ", event.code);
    case FailureKind::kSignalled:
      return absl::StrCat("killed by signal ", event.code, " (", SignalName(event.code), ")");
    case FailureKind::kOutOfMemory:
      return "killed by the kernel for lack of memory";
    case FailureKind::kUnreachable:
      return "unreachable, its host is silent";
    case FailureKind::kHung:
      return "hung";
    case FailureKind::kStopped:
      return "stopped";
    case FailureKind::kStartFailed:
      return event.phase.empty() ? "failed to start" : absl::StrCat("failed to start in phase ", event.phase);
  }
  // A value from a newer peer.
  return absl::StrCat("ended with kind ", static_cast<int>(event.kind));
}

std::string Subject(const FailureEvent& event) {
  std::string text = event.actor_class.empty() ? "proc" : absl::StrCat("actor ", event.actor_class);
  if (!event.mesh.empty()) {
    absl::StrAppend(&text, " of mesh ", event.mesh, " rank ", event.rank);
    if (!event.rank_label.empty()) absl::StrAppend(&text, " ", event.rank_label);
  }
  if (!event.host_name.empty()) absl::StrAppend(&text, " on ", event.host_name);
  if (event.pid != 0) absl::StrAppend(&text, " (pid ", event.pid, ")");
  return text;
}

// Names and reasons come from user code and must not break the line.
std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(absl::StripAsciiWhitespace(text), {{"\r\n", " "}, {"\n", " "}, {"\r", " "}});
}

void AppendBlock(absl::string_view title, absl::string_view text, const std::string& indent,
                 std::string& out) {
  text = absl::StripTrailingAsciiWhitespace(text);
  if (text.empty()) return;
  absl::StrAppend(&out, "\n", indent, title, ":");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&out, "\n", indent, "  ", absl::StripSuffix(line, "\r"));
  }
}

void AppendReport(const FailureEvent& event, int depth, std::string& out) {
  const std::string indent(static_cast<size_t>(2 * (depth + 1)), ' ');
  out += event.Summary();
  AppendBlock("last lines of stderr", event.stderr_tail, indent, out);
  AppendBlock("traceback", event.traceback, indent, out);
  AppendBlock("native back-trace", event.backtrace, indent, out);
  if (event.cause.empty()) return;
  absl::StrAppend(&out, "\n", indent, "caused by: ");
  if (depth + 1 >= kCausesShownMax) {
    out += "(more causes, not shown)";
    return;
  }
  AppendReport(event.cause.front(), depth + 1, out);
}

}  // namespace

std::string_view FailureKindName(FailureKind kind) {
  switch (kind) {
    case FailureKind::kUnspecified:
      return "unspecified";
    case FailureKind::kException:
      return "exception";
    case FailureKind::kExited:
      return "exited";
    case FailureKind::kSignalled:
      return "signalled";
    case FailureKind::kOutOfMemory:
      return "out_of_memory";
    case FailureKind::kUnreachable:
      return "unreachable";
    case FailureKind::kHung:
      return "hung";
    case FailureKind::kStopped:
      return "stopped";
    case FailureKind::kStartFailed:
      return "start_failed";
  }
  return "unknown";
}

std::string FailureEvent::Summary() const {
  std::string text = absl::StrCat(Subject(*this), ": ", Ending(*this));
  if (!reason.empty()) absl::StrAppend(&text, ": ", reason);
  return OneLine(text);
}

std::string FailureEvent::Report() const {
  std::string text;
  AppendReport(*this, 0, text);
  return text;
}

}  // namespace monarch
