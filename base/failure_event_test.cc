#include "base/failure_event.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <string>

namespace monarch {
namespace {

FailureEvent Trainer() {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.code = SIGKILL;
  event.mesh = "trainers";
  event.rank = 3;
  event.rank_label = "{'gpus': 3/8}";
  event.actor_class = "train.Trainer";
  event.host_name = "node1";
  event.pid = 12;
  return event;
}

std::string EndingOf(FailureKind kind, int code = 0, const char* phase = "", const char* reason = "") {
  FailureEvent event;
  event.kind = kind;
  event.code = code;
  event.phase = phase;
  event.reason = reason;
  return event.Summary();
}

TEST_CASE("TheSummaryNamesWhoWhereAndHow", "[failure_event]") {
  CHECK(Trainer().Summary() ==
        "actor train.Trainer of mesh trainers rank 3 {'gpus': 3/8} on node1 (pid 12): killed by signal 9 "
        "(SIGKILL)");
}

TEST_CASE("UnknownPartsAreLeftOut", "[failure_event]") {
  FailureEvent event = Trainer();
  event.actor_class.clear();
  event.rank_label.clear();
  CHECK(event.Summary() == "proc of mesh trainers rank 3 on node1 (pid 12): killed by signal 9 (SIGKILL)");
  event.mesh.clear();
  event.host_name.clear();
  event.pid = 0;
  CHECK(event.Summary() == "proc: killed by signal 9 (SIGKILL)");
}

TEST_CASE("EachKindHasItsWords", "[failure_event]") {
  CHECK(EndingOf(FailureKind::kException, 0, "", "ValueError: no") ==
        "proc: raised an exception: ValueError: no");
  CHECK(EndingOf(FailureKind::kExited, 3) == "proc: exited with status 3");
  CHECK(EndingOf(FailureKind::kSignalled, SIGSEGV) == "proc: killed by signal 11 (SIGSEGV)");
  CHECK(EndingOf(FailureKind::kSignalled, SIGRTMIN + 2) ==
        "proc: killed by signal " + std::to_string(SIGRTMIN + 2) + " (SIGRTMIN+2)");
  CHECK(EndingOf(FailureKind::kSignalled, 999) == "proc: killed by signal 999 (unknown)");
  CHECK(EndingOf(FailureKind::kOutOfMemory) == "proc: killed by the kernel for lack of memory");
  CHECK(EndingOf(FailureKind::kUnreachable) == "proc: unreachable, its host is silent");
  CHECK(EndingOf(FailureKind::kHung) == "proc: hung");
  CHECK(EndingOf(FailureKind::kStopped, 0, "", "asked to") == "proc: stopped: asked to");
  CHECK(EndingOf(FailureKind::kStartFailed, 0, "launched", "no such file") ==
        "proc: failed to start in phase launched: no such file");
  CHECK(EndingOf(FailureKind::kStartFailed) == "proc: failed to start");
  CHECK(EndingOf(FailureKind::kUnspecified) == "proc: ended for an unknown cause");
  CHECK(EndingOf(static_cast<FailureKind>(77)) == "proc: ended with kind 77");
}

TEST_CASE("OnlyStoppedIsAStop", "[failure_event]") {
  FailureEvent event;
  event.kind = FailureKind::kStopped;
  CHECK(event.is_stop());
  CHECK_FALSE(Trainer().is_stop());
}

TEST_CASE("TheSummaryIsOneLineWhateverTheReason", "[failure_event]") {
  CHECK(EndingOf(FailureKind::kException, 0, "", "Error: a\nb\r\nc\n") ==
        "proc: raised an exception: Error: a b c");
}

TEST_CASE("AReportWithNothingMoreIsItsSummary", "[failure_event]") {
  CHECK(Trainer().Report() == Trainer().Summary());
}

TEST_CASE("TheReportAddsStderrTracebackAndCauseIndented", "[failure_event]") {
  FailureEvent event = Trainer();
  event.stderr_tail = "first\nlast\n";
  event.traceback = "Traceback:\n  File \"a.py\"\n";
  FailureEvent cause;
  cause.kind = FailureKind::kExited;
  cause.code = 1;
  cause.host_name = "node2";
  cause.stderr_tail = "boom";
  event.cause.push_back(cause);
  CHECK(event.Report() == event.Summary() +
                              "\n"
                              "  last lines of stderr:\n"
                              "    first\n"
                              "    last\n"
                              "  traceback:\n"
                              "    Traceback:\n"
                              "      File \"a.py\"\n"
                              "  caused by: proc on node2: exited with status 1\n"
                              "    last lines of stderr:\n"
                              "      boom");
}

TEST_CASE("AnEndlessChainOfCausesIsCut", "[failure_event]") {
  FailureEvent event;
  for (int i = 0; i < 100; ++i) {
    FailureEvent outer;
    outer.cause.push_back(std::move(event));
    event = std::move(outer);
  }
  const std::string report = event.Report();
  CHECK(report.find("(more causes, not shown)") != std::string::npos);
  CHECK(report.size() < 4096);
}

TEST_CASE("KindsHaveWireNames", "[failure_event]") {
  CHECK(FailureKindName(FailureKind::kUnspecified) == "unspecified");
  CHECK(FailureKindName(FailureKind::kException) == "exception");
  CHECK(FailureKindName(FailureKind::kExited) == "exited");
  CHECK(FailureKindName(FailureKind::kSignalled) == "signalled");
  CHECK(FailureKindName(FailureKind::kOutOfMemory) == "out_of_memory");
  CHECK(FailureKindName(FailureKind::kUnreachable) == "unreachable");
  CHECK(FailureKindName(FailureKind::kHung) == "hung");
  CHECK(FailureKindName(FailureKind::kStopped) == "stopped");
  CHECK(FailureKindName(FailureKind::kStartFailed) == "start_failed");
  CHECK(FailureKindName(static_cast<FailureKind>(77)) == "unknown");
}

}  // namespace
}  // namespace monarch
