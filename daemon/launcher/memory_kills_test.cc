#include "daemon/launcher/memory_kills.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace monarch {
namespace {

using Answer = MemoryVerdict::Answer;

// A directory with what the kernel would count in. Threading: confined to one thread.
class Counters {
 public:
  Counters() {
    char name[] = "/tmp/monarch_memory_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    root_ = name;
    std::filesystem::create_directory(leaf());
  }
  ~Counters() { std::filesystem::remove_all(root_); }
  std::string leaf() const { return root_ + "/leaf"; }
  std::string shared() const { return root_ + "/memory.oom_control"; }
  void SetLeaf(int kills) const {
    std::ofstream(leaf() + "/memory.events") << "low 0\nhigh 0\nmax 3\noom 3\noom_kill " << kills << "\n";
  }
  void SetShared(int kills) const {
    std::ofstream(shared()) << "oom_kill_disable 0\nunder_oom 0\noom_kill " << kills << "\n";
  }

 private:
  std::string root_;
};

TEST_CASE("ReadsTheCountOfBothVersions") {
  CHECK(ParseOomKills("low 0\noom 7\noom_kill 2\noom_group_kill 9\n") == 2);
  CHECK(ParseOomKills("oom_kill_disable 1\nunder_oom 0\noom_kill 4") == 4);
  CHECK_FALSE(ParseOomKills("").has_value());
  CHECK_FALSE(ParseOomKills("oom_kill_disable 0\nunder_oom 0\n").has_value());
  CHECK_FALSE(ParseOomKills("oom_kill -1\n").has_value());
  CHECK_FALSE(ParseOomKills("oom_kill many\n").has_value());
}

TEST_CASE("ACgroupOfItsOwnDecides") {
  const Counters counters;
  counters.SetShared(0);
  counters.SetLeaf(0);
  MemoryKills kills(counters.shared());
  counters.SetShared(5);  // of others
  CHECK(kills.Judge(counters.leaf()).answer == Answer::kNo);
  counters.SetLeaf(1);
  const MemoryVerdict verdict = kills.Judge(counters.leaf());
  CHECK(verdict.answer == Answer::kYes);
  CHECK(verdict.why == "oom_kill in " + counters.leaf() + "/memory.events rose from 0 to 1");
}

TEST_CASE("WhatAWorkerSurvivesSaysNothingOfItsEnd") {
  const Counters counters;
  counters.SetLeaf(2);
  MemoryKills kills("");
  kills.OnRise(counters.leaf(), getpid());  // nobody has killed this one
  const MemoryVerdict verdict = kills.Judge(counters.leaf());
  CHECK(verdict.answer == Answer::kNo);
  CHECK(verdict.why == "not for lack of memory, for oom_kill in " + counters.leaf() +
                           "/memory.events stayed 2: somebody sent SIGKILL");
  // Judged once: the directory's name may come again.
  CHECK(kills.Judge(counters.leaf()).answer == Answer::kYes);
  kills.OnRise(counters.leaf(), getpid());
  counters.SetLeaf(3);
  CHECK(kills.Judge(counters.leaf()).why ==
        "oom_kill in " + counters.leaf() + "/memory.events rose from 2 to 3");
}

TEST_CASE("ARiseThatAWorkerDoesNotSurviveIsItsOwn") {
  const Counters counters;
  counters.SetLeaf(1);
  MemoryKills kills("");
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  REQUIRE(child > 0);
  REQUIRE(kill(child, SIGKILL) == 0);
  kills.OnRise(counters.leaf(), child);  // on its way
  siginfo_t info;
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  kills.OnRise(counters.leaf(), child);  // a zombie
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED) == 0);
  kills.OnRise(counters.leaf(), child);  // gone
  CHECK(kills.Judge(counters.leaf()).answer == Answer::kYes);
}

TEST_CASE("ReadsAPendingKill") {
  CHECK(ParseKillIsPending("Name:\tx\nSigPnd:\t0\nShdPnd:\t0000000000000100\nSigBlk:\t0\n"));
  CHECK_FALSE(ParseKillIsPending("SigPnd:\t0000000000000100\nShdPnd:\t0000000000004000\n"));
  CHECK_FALSE(ParseKillIsPending("Name:\tShdPnd: 100\n"));
  CHECK_FALSE(ParseKillIsPending(""));
}

TEST_CASE("WithoutOneEachRiseOfTheSharedCountIsTakenForOneWorker") {
  const Counters counters;  // the leaf counts no memory
  counters.SetShared(3);
  MemoryKills kills(counters.shared());
  const MemoryVerdict before = kills.Judge(counters.leaf());
  CHECK(before.answer == Answer::kNo);
  CHECK(before.why ==
        "not for lack of memory, for oom_kill in " + counters.shared() + " stayed 3: somebody sent SIGKILL");
  counters.SetShared(5);
  CHECK(kills.Judge("").answer == Answer::kYes);
  CHECK(kills.Judge(counters.leaf()).why == "oom_kill in " + counters.shared() + " rose from 4 to 5");
  CHECK(kills.Judge("").answer == Answer::kNo);
}

TEST_CASE("WithoutAnyCountTheCauseIsNotKnown") {
  const Counters counters;
  for (const std::string& shared : {std::string(), counters.shared()}) {
    MemoryKills kills(shared);
    const MemoryVerdict verdict = kills.Judge(counters.leaf());
    CHECK(verdict.answer == Answer::kUnknown);
    CHECK(verdict.why.find("cause unknown") == 0);
  }
}

}  // namespace
}  // namespace monarch
