#include "client/cpp/ctl/format.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>

#include "client/cpp/ctl/table.h"

namespace monarch::ctl {
namespace {

Snapshot Answered(const std::string& directory, const std::string& status, const std::string& tree) {
  Snapshot snapshot;
  snapshot.place.directory = directory;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(status, &snapshot.status));
  REQUIRE(google::protobuf::TextFormat::ParseFromString(tree, &snapshot.tree));
  return snapshot;
}

Snapshot Silent(const std::string& directory) {
  Snapshot snapshot;
  snapshot.place.directory = directory;
  snapshot.answer = absl::DeadlineExceededError("no answer within 5s");
  return snapshot;
}

constexpr char kStatus[] = R"(
  host_name: "node-1" version: "0.1.0" pid: 4711 uptime_ms: 192000 is_private: true sessions: 1 procs: 2 actors: 3
  limits { name: "sessions_max" value: 100 used: 1 }
  limits { name: "links_max" value: 256 used: 250 }
)";

// A program with two procs, a trainer on each, and a helper that the second trainer owns.
constexpr char kTree[] = R"(
  sessions {
    session: "0123456789abcdef0123456789abcdef" name: "train.py" client_pid: 4700 age_ms: 61000
    client { host: "h" proc: 1 incarnation: 1 }
    procs { address { host: "h" proc: 2 incarnation: 1 } rank: 0 pid: 4720 mesh: "p0" phase: "ready" rank_label: "{'gpus': 0/2}" }
    procs { address { host: "h" proc: 3 incarnation: 1 } rank: 1 pid: 4721 mesh: "p0" phase: "stopping" rank_label: "{'gpus': 1/2}" }
    actors {
      address { proc { host: "h" proc: 2 incarnation: 1 } actor: 5 } actor_class: "job.Trainer" mesh: "trainers"
      rank: 0 rank_label: "{'gpus': 0/2}" owner { proc { host: "h" proc: 1 incarnation: 1 } actor: 1 } state: "running"
    }
    actors {
      address { proc { host: "h" proc: 3 incarnation: 1 } actor: 5 } actor_class: "job.Trainer" mesh: "trainers"
      rank: 1 rank_label: "{'gpus': 1/2}" owner { proc { host: "h" proc: 1 incarnation: 1 } actor: 1 } state: "failed"
    }
    actors {
      address { proc { host: "h" proc: 2 incarnation: 1 } actor: 6 } actor_class: "job.Helper" mesh: "helper"
      owner { proc { host: "h" proc: 3 incarnation: 1 } actor: 5 } state: "running"
    }
  }
  activities { actor { proc { host: "h" proc: 2 incarnation: 1 } actor: 5 } method: "train" age_ms: 65000 state: "waiting" }
  activities { actor { proc { host: "h" proc: 2 incarnation: 1 } actor: 6 } method: "help" age_ms: 200 }
)";

std::vector<Snapshot> OneAndASilentOne() {
  return {Answered("/tmp/monarch-0/a", kStatus, kTree), Silent("/run/monarch")};
}

TEST_CASE("FormatStatus.ShowsDaemonsFullLimitsAndSilentOnes") {
  CHECK(FormatStatus(OneAndASilentOne()) ==
        "HOST    KIND     PID   VERSION  UP     SESSIONS  PROCS  ACTORS  ADDRESS\n"
        "node-1  private  4711  0.1.0    3m12s  1         2      3       unix:/tmp/monarch-0/a\n"
        "node-1: limit links_max is 97% used: 250 of 256\n"
        "daemon at unix:/run/monarch: no answer within 5s\n");
}

TEST_CASE("FormatPs.ShowsTheClientAndItsProcsAndWhatTheyAreAtWorkOnForLongest") {
  CHECK(FormatPs(OneAndASilentOne()) ==
        "HOST    PID   MESH      RANK             STATE     ACTORS  AT WORK              SESSION   PROGRAM\n"
        "node-1  4700  (client)                   running   0                            01234567  train.py\n"
        "node-1  4720  p0        0 {'gpus': 0/2}  ready     2       train 1m05s waiting  01234567  train.py\n"
        "node-1  4721  p0        1 {'gpus': 1/2}  stopping  1                            01234567  train.py\n"
        "daemon at unix:/run/monarch: no answer within 5s\n");
}

TEST_CASE("FormatSessions.IsALineForEachProgram") {
  const std::string tree = R"(
    sessions { session: "0123456789abcdef0123456789abcdef" name: "train.py" client_pid: 4700 uid: 1000 age_ms: 61000
               state: "running" procs {} procs {} actors {} }
    sessions { session: "fedc456789abcdef0123456789abcdef" name: "eval.py" client_pid: 12 uid: 1001 age_ms: 500
               state: "ending" guest: true }
  )";
  CHECK(FormatSessions({Answered("/run/monarch", kStatus, tree), Silent("/tmp/monarch-0/a")}) ==
        "SESSION   STATE    AGE    UID   CLIENT      PROCS  ACTORS  PROGRAM   HOST    ADDRESS\n"
        "01234567  running  1m01s  1000  pid 4700    2      1       train.py  node-1  unix:/run/monarch\n"
        "fedc4567  ending   500ms  1001  other host  0      0       eval.py   node-1  unix:/run/monarch\n"
        "daemon at unix:/tmp/monarch-0/a: no answer within 5s\n");
}

v1::StopSessionResponse Stopped(const std::string& ends) {
  v1::StopSessionResponse stopped;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(ends, &stopped));
  return stopped;
}

TEST_CASE("FormatStopped.NamesWhatDidNotEndByItself") {
  v1::SessionInfo session;
  session.set_session("0123456789abcdef0123456789abcdef");
  session.set_name("train.py");
  const std::string ends = R"(
    ends { kind: FAILURE_KIND_STOPPED mesh: "p0" rank: 0 pid: 11 }
    ends { kind: FAILURE_KIND_STOPPED code: 9 mesh: "p0" rank: 1 rank_label: "{'gpus': 1/2}" pid: 12 host_name: "node-1"
           reason: "the session ends; killed by SIGKILL" }
  )";
  CHECK(FormatStopped(session, Stopped(ends)) ==
        "session 01234567 of train.py has ended: 2 processes, 1 by itself\n"
        "  proc of mesh p0 rank 1 {'gpus': 1/2} on node-1 (pid 12): stopped: the session ends; killed by "
        "SIGKILL\n");
  CHECK(FormatStopped(session, Stopped("")) ==
        "session 01234567 of train.py has ended: 0 processes, 0 by themselves\n");
  CHECK(
      FormatStoppedJson(Answered("/run/monarch", "", ""), session, Stopped("ends { code: 9 }"))
          .starts_with("{\"address\":\"unix:/run/monarch\",\"session\":\"0123456789abcdef0123456789abcdef\","
                       "\"stopped\":{\"ends\":[{"));
}

TEST_CASE("FormatPs.OfAProcessShowsWhatIsHungBeforeWhatIsOlder") {
  const std::string tree = R"(sessions {
    name: "x" client { proc: 1 }
    procs { address { proc: 2 } pid: 7 mesh: "p" phase: "ready" }
  }
  activities { actor { proc { proc: 2 } actor: 5 } method: "serve" age_ms: 90000 state: "waiting" }
  activities { actor { proc { proc: 2 } actor: 6 } method: "train" age_ms: 65000 state: "stopped" hung: true }
  activities { actor { proc { proc: 1 } actor: 9 } method: "log" age_ms: 200 }
  )";
  const std::string text = FormatPs({Answered("/d", "", tree)});
  CHECK(text.find("train 1m05s stopped HUNG") != std::string::npos);
  CHECK(text.find("serve") == std::string::npos);
  CHECK(text.find("log 200ms") != std::string::npos);  // of the client
}

TEST_CASE("FormatDoctor.ShowsEachLimitBesideItsUse") {
  const std::string status = R"(
    host_name: "n" pid: 7
    limits { name: "sessions_max" what: "sessions" value: 100 used: 7 }
    limits { name: "send_wait_ms" what: "a wait" value: 30000 }
  )";
  CHECK(FormatDoctor({Answered("/d", status, "")}) ==
        "n  (system daemon, pid 7, unix:/d)\n"
        "LIMIT         VALUE  USED      WHAT\n"
        "sessions_max  100    7     7%  sessions\n"
        "send_wait_ms  30000  -     -   a wait\n");
}

TEST_CASE("FormatTree.SaysWhichActorsAreHung") {
  const std::string tree = R"(sessions {
    name: "x" client { proc: 1 }
    actors { address { proc { proc: 2 } actor: 5 } mesh: "a" owner { proc { proc: 1 } actor: 1 } state: "running" }
    actors { address { proc { proc: 3 } actor: 5 } mesh: "a" rank: 1 owner { proc { proc: 1 } actor: 1 } state: "running" }
  }
  activities { actor { proc { proc: 2 } actor: 5 } method: "train" age_ms: 65000 hung: true }
  activities { actor { proc { proc: 3 } actor: 5 } method: "train" age_ms: 65000 })";
  const std::string text = FormatTree({Answered("/d", "", tree)});
  CHECK(text.find("rank 0  running, HUNG in train for 1m05s\n") != std::string::npos);
  CHECK(text.find("rank 1  running\n") != std::string::npos);
}

TEST_CASE("FormatTree.ShowsActorsBelowTheirOwners") {
  CHECK(FormatTree(OneAndASilentOne()) ==
        "node-1  (private daemon, pid 4711, up 3m12s)\n"
        "└─ train.py  (session 01234567, client pid 4700, 1m01s)\n"
        "   ├─ procs p0: 1 ready, 1 stopping\n"
        "   └─ actors trainers: job.Trainer\n"
        "      ├─ {'gpus': 0/2}  pid 4720  running\n"
        "      └─ {'gpus': 1/2}  pid 4721  failed\n"
        "         └─ actors helper: job.Helper\n"
        "            └─ rank 0  pid 4720  running\n"
        "daemon at unix:/run/monarch: no answer within 5s\n");
}

TEST_CASE("FormatTree.SaysWhatBecameOfMeshesWithARestartPolicy") {
  const std::string tree = R"(sessions {
    name: "x" client { proc: 1 }
    procs { address { proc: 2 } rank: 0 mesh: "p" phase: "ready" }
    actors {
      address { proc { proc: 1 } actor: 7 } actor_class: "monarch.Restarter" mesh: "p.restarts"
      owner { proc { proc: 1 } actor: 1 } state: "running"
      restarts { mesh: "p" of_procs: true policy: "one_for_one, at most 3 within 60 s" incarnation: 2 restarts: 1 }
    }
    actors {
      address { proc { proc: 1 } actor: 8 } actor_class: "monarch.Restarter" mesh: "a.restarts"
      owner { proc { proc: 1 } actor: 1 } state: "running"
      restarts {
        mesh: "a" policy: "one_for_all, at most 2 within 5 s" incarnation: 3 restarts: 2 given_up: true
        cause { kind: FAILURE_KIND_SIGNALLED code: 9 mesh: "a" rank: 1 actor_class: "job.A" }
      }
    }
    actors { address { proc { proc: 2 } actor: 5 } actor_class: "job.A" mesh: "a" rank: 1 owner { proc { proc: 1 } actor: 8 } incarnation: 1 state: "failed" }
    actors { address { proc { proc: 2 } actor: 6 } actor_class: "job.A" mesh: "a" rank: 1 owner { proc { proc: 1 } actor: 8 } incarnation: 3 state: "running" }
    actors { address { proc { proc: 2 } actor: 9 } actor_class: "job.B" mesh: "b" owner { proc { proc: 1 } actor: 1 } incarnation: 2 state: "running" }
    actors {
      address { proc { proc: 1 } actor: 10 } mesh: "c.restarts" owner { proc { proc: 2 } actor: 6 } state: "running"
      restarts { mesh: "c" policy: "one_for_one, at most 3 within 60 s" incarnation: 1 }
    }
  })";
  const std::string text = FormatTree({Answered("/d", "host_name: 'n'", tree)});
  CHECK(text ==
        "n  (system daemon, pid 0, up 0ms)\n"
        "└─ x  (session , client pid 0, 0ms)\n"
        "   ├─ procs p: 1 ready  (incarnation 2, 1 restart by one_for_one, at most 3 within 60 s)\n"
        "   ├─ actors a: job.A  (incarnation 3, 2 restarts by one_for_all, at most 2 within 5 s, given up)\n"
        "   │  ├─ last cause: actor job.A of mesh a rank 1: killed by signal 9 (SIGKILL)\n"
        "   │  └─ rank 1  pid 0  running\n"
        "   │     └─ actors c: none on this host  (incarnation 1, 0 restarts by one_for_one, at most 3 "
        "within 60 s)\n"
        "   └─ actors b: job.B  (incarnation 2, with its processes)\n"
        "      └─ rank 0  pid 0  running\n");
}

TEST_CASE("FormatTree.ShowsActorsOnceEvenIfTheyOwnEachOther") {
  const std::string tree = R"(sessions {
    name: "x" client { proc: 1 }
    actors { address { proc { proc: 2 } actor: 5 } mesh: "a" owner { proc { proc: 2 } actor: 6 } state: "running" }
    actors { address { proc { proc: 2 } actor: 6 } mesh: "b" owner { proc { proc: 2 } actor: 5 } state: "running" }
  })";
  const std::string text = FormatTree({Answered("/d", "host_name: 'n'", tree)});
  CHECK(text ==
        "n  (system daemon, pid 0, up 0ms)\n"
        "└─ x  (session , client pid 0, 0ms)\n"
        "   └─ actors b: \n"
        "      └─ rank 0  running\n"
        "         └─ actors a: \n"
        "            └─ rank 0  running\n");
}

TEST_CASE("FormatTree.AnActorWhoseOwnerIsGoneIsBelowTheSession") {
  const std::string tree = R"(sessions {
    name: "x" client { proc: 1 }
    actors { address { proc { proc: 2 } actor: 5 } mesh: "a" owner { proc { proc: 9 } actor: 9 } state: "running" }
  })";
  CHECK(FormatTree({Answered("/d", "", tree)}).find("   └─ actors a: \n      └─ rank 0  running\n") !=
        std::string::npos);
}

// A trainer's process was killed in a call, and its owner failed with it; before, a process was killed for
// memory.
constexpr char kFailures[] = R"_(
  failures {
    session: "0123456789abcdef0123456789abcdef" unix_ms: 90000
    event {
      kind: FAILURE_KIND_EXCEPTION mesh: "owner" actor_class: "job.Owner" host_name: "node-1" pid: 4720
      reason: "it did not handle a failure"
      cause {
        kind: FAILURE_KIND_SIGNALLED code: 11 mesh: "trainers" rank: 1 rank_label: "{'gpus': 1/2}"
        actor_class: "job.Trainer" host_name: "node-1" pid: 4721
        reason: "access to address 0x10, which is not mapped, in thread 4721 \"python\""
        stderr_tail: "loading\nFatal Python error: Segmentation fault"
        backtrace: "SIGSEGV: access to address 0x10\n#0 0x7f in job_step+0x4 (libjob.so+0x11)"
      }
    }
  }
  failures {
    session: "0123456789abcdef0123456789abcdef" unix_ms: 89000
    event { kind: FAILURE_KIND_SIGNALLED code: 11 mesh: "p0" rank: 1 host_name: "node-1" pid: 4721 }
    lost_actors { mesh: "trainers" rank: 1 actor_class: "job.Trainer" }
  }
)_";

constexpr char kMemoryFailure[] = R"(
  failures {
    session: "0123456789abcdef0123456789abcdef" unix_ms: 60000
    event {
      kind: FAILURE_KIND_OUT_OF_MEMORY code: 9 mesh: "p0" rank: 1 rank_label: "{'gpus': 1/2}" host_name: "node-1" pid: 4721
      reason: "oom_kill in /cg/memory.events rose from 0 to 1" stderr_tail: "step 7\x1b[31m"
    }
    lost_actors { mesh: "trainers" rank: 1 actor_class: "job.Trainer" }
    lost_actors { mesh: "helpers" rank: 0 actor_class: "job.Helper" }
  }
)";

Snapshot WithFailures(const std::string& failures) {
  Snapshot snapshot = Answered("/tmp/monarch-0/a", kStatus, "");
  REQUIRE(google::protobuf::TextFormat::ParseFromString(failures, &snapshot.failures));
  return snapshot;
}

TEST_CASE("FormatWhy.ShowsTheNewestFailureWithItsCauses") {
  CHECK(FormatWhy({WithFailures(kMemoryFailure), WithFailures(kFailures), Silent("/run/monarch")}, "",
                  95'000) ==
        "actor job.Owner of mesh owner rank 0 on node-1 (pid 4720): raised an exception: it did not handle "
        "a failure\n"
        "  caused by: actor job.Trainer of mesh trainers rank 1 {'gpus': 1/2} on node-1 (pid 4721): killed "
        "by signal 11 "
        "(SIGSEGV): access to address 0x10, which is not mapped, in thread 4721 \"python\"\n"
        "    last lines of stderr:\n"
        "      loading\n"
        "      Fatal Python error: Segmentation fault\n"
        "    native back-trace:\n"
        "      SIGSEGV: access to address 0x10\n"
        "      #0 0x7f in job_step+0x4 (libjob.so+0x11)\n"
        "  5s ago, session 01234567\n"
        "\n"
        "before that: p0:1 6s ago, p0:1 35s ago\n"
        "daemon at unix:/run/monarch: no answer within 5s\n");
}

TEST_CASE("FormatWhy.WhatHasEndedComesBehindWhatIsStillSo") {
  const char* hangs = R"_(
    failures {
      session: "01234567" unix_ms: 94000 hang { method: "save" age_ms: 3000 recovered: true took_ms: 4000 }
      event {
        kind: FAILURE_KIND_HUNG mesh: "savers" actor_class: "job.Saver"
        reason: "save has been at work for 3.0 s: waiting; save has ended after 4.0 s"
      }
    }
    failures {
      session: "01234567" unix_ms: 93000 hang { method: "train" age_ms: 3000 }
      event {
        kind: FAILURE_KIND_HUNG mesh: "trainers" actor_class: "job.Trainer"
        reason: "train has been at work for 3.0 s: stopped"
      }
    })_";
  CHECK(FormatWhy({WithFailures(hangs)}, "", 95'000) ==
        "actor job.Trainer of mesh trainers rank 0: hung: train has been at work for 3.0 s: stopped\n"
        "  2s ago, session 01234567\n"
        "\n"
        "also known: savers:0 1s ago\n");
}

TEST_CASE("FormatWhy.NamesTheActorsThatWentWithAProcess") {
  CHECK(FormatWhy({WithFailures(kMemoryFailure)}, "trainers", 61'000) ==
        "proc of mesh p0 rank 1 {'gpus': 1/2} on node-1 (pid 4721): killed by the kernel for lack of "
        "memory: oom_kill in "
        "/cg/memory.events rose from 0 to 1\n"
        "  last lines of stderr:\n"
        "    step 7?[31m\n"
        "  its actors: trainers:1 (job.Trainer), helpers:0 (job.Helper)\n"
        "  1s ago, session 01234567\n");
}

TEST_CASE("FormatWhy.SaysThatNothingIsKnown") {
  CHECK(FormatWhy({WithFailures("")}, "", 0) == "no failure is known\n");
  CHECK(FormatWhy({WithFailures("")}, "p0:\x1b", 0) == "no failure of p0:? is known\n");
}

TEST_CASE("FormatJson.HoldsTheFailures") {
  const std::string json = FormatJson({WithFailures(kMemoryFailure)}, JsonPart::kFailures);
  CHECK(json.find(
            R"("failures":{"failures":[{"session":"0123456789abcdef0123456789abcdef","unix_ms":"60000",)"
            R"("event":{"kind":"FAILURE_KIND_OUT_OF_MEMORY","mesh":"p0","rank":1,)") != std::string::npos);
  CHECK(json.find(R"("lost_actors":[{"mesh":"trainers","rank":1,"actor_class":"job.Trainer"},)") !=
        std::string::npos);
}

TEST_CASE("FormatJson.HoldsTheMessagesAndTheErrors") {
  const std::string status = R"(host_name: "n" pid: 7)";
  CHECK(
      FormatJson({Answered("/d", status, ""), Silent("/run/monarch")}, JsonPart::kTree) ==
      R"({"daemons":[{"address":"unix:/d","answered":true,"status":{"host":"","host_name":"n","version":"",)"
      R"("pid":"7","uptime_ms":"0","is_private":false,"sessions":0,"procs":0,"actors":0,"limits":[]},)"
      R"("tree":{"sessions":[],"activities":[]}},{"address":"unix:/run/monarch","answered":false,)"
      R"("code":"DEADLINE_EXCEEDED",)"
      R"("error":"no answer within 5s"}]})"
      "\n");
  CHECK(FormatJson({}, JsonPart::kNone) == "{\"daemons\":[]}\n");
}

TEST_CASE("FormatAge.PicksTwoUnits") {
  CHECK(FormatAge(-5) == "0ms");
  CHECK(FormatAge(850) == "850ms");
  CHECK(FormatAge(59'999) == "59s");
  CHECK(FormatAge(192'000) == "3m12s");
  CHECK(FormatAge(3'600'000 * 5 + 120'000) == "5h02m");
  CHECK(FormatAge(86'400'000ll * 9 + 3'600'000 * 4) == "9d04h");
}

TEST_CASE("Printable.KeepsTextAndDropsControlCharacters") {
  CHECK(Printable("grüße {'gpus': 0/2}") == "grüße {'gpus': 0/2}");
  CHECK(Printable("a\x1b[31mb\nc\x7f") == "a?[31mb?c?");
}

TEST_CASE("Table.AlignsUtf8") {
  Table table({"A", "B"});
  table.Add({"é", "1"});
  table.Add({"xx", "2"});
  CHECK(table.ToString() == "A   B\né   1\nxx  2\n");
}

TEST_CASE("FormatEvent.IsALineWithTimeSessionAndWhatHappened") {
  v1::WatchResponse event;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    cursor: 7 session: "0123456789abcdef0123456789abcdef" what: "proc_ended" unix_ms: 1764763200123
    failure { kind: FAILURE_KIND_SIGNALLED mesh: "trainers" rank: 3 code: 9 pid: 4720 host_name: "node-1" }
  )",
                                                        &event));
  CHECK(FormatEvent(event, absl::UTCTimeZone()) ==
        "2025-12-03 12:00:00.123  01234567  proc_ended       proc of mesh trainers rank 3 on node-1 (pid "
        "4720): "
        "killed by signal 9 (SIGKILL)\n");

  event.clear_failure();
  event.set_what("session_ended");
  event.set_reason("its client was ended by SIGTERM");
  CHECK(FormatEvent(event, absl::UTCTimeZone()) ==
        "2025-12-03 12:00:00.123  01234567  session_ended    its client was ended by SIGTERM\n");

  event.clear_reason();
  event.set_what("session_started\x1b[31m");
  event.set_missed(12);
  CHECK(FormatEvent(event, absl::UTCTimeZone()) ==
        "12 events before this one are no longer kept\n"
        "2025-12-03 12:00:00.123  01234567  session_started?[31m\n");
}

TEST_CASE("FormatEventJson.IsOneLine") {
  v1::WatchResponse event;
  event.set_cursor(7);
  event.set_what("session\nended");
  const std::string text = FormatEventJson({"/run/monarch"}, event);
  CHECK(text.find(R"({"address":"unix:/run/monarch","event":{"cursor":"7",)") == 0);
  CHECK(text.find('\n') == text.size() - 1);
}

}  // namespace
}  // namespace monarch::ctl
