#include "daemon/launcher/process_stat.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "daemon/launcher/exit_status.h"

namespace monarch {
namespace {

std::string LineWith(const std::string& command, const std::string& state, int parent, int exit_code) {
  std::string line = "42 (" + command + ") " + state + " " + std::to_string(parent);
  for (int field = 5; field <= 51; ++field) line += " 0";
  return line + " " + std::to_string(exit_code) + "\n";
}

TEST_CASE("ParsesACommandWithParenthesesAndSpaces") {
  const absl::StatusOr<ProcessStat> stat = ParseProcessStat(LineWith("a) R 1 (b", "Z", 7, 9));
  REQUIRE(stat.ok());
  CHECK(stat->pid == 42);
  CHECK(stat->state == 'Z');
  CHECK(stat->parent == 7);
  CHECK(stat->exit_code == 9);
}

TEST_CASE("RefusesWhatIsNoStatLine") {
  CHECK_FALSE(ParseProcessStat("").ok());
  CHECK_FALSE(ParseProcessStat("42 (sh").ok());
  CHECK_FALSE(ParseProcessStat("42 )sh( S 1").ok());
  CHECK_FALSE(ParseProcessStat("42 (sh) S 1 2 3").ok());
  CHECK_FALSE(ParseProcessStat(LineWith("sh", "long", 1, 0)).ok());
}

TEST_CASE("ReadsItself") {
  const std::optional<ProcessStat> stat = ReadProcessStat(getpid());
  REQUIRE(stat.has_value());
  CHECK(stat->pid == getpid());
  CHECK(stat->parent == getppid());
  const std::vector<ProcessStat> all = ListProcesses();
  CHECK(std::any_of(all.begin(), all.end(), [](const ProcessStat& s) { return s.pid == getpid(); }));
}

TEST_CASE("ReadsTheCauseOfDeathOfAZombie") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(7);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  const std::optional<ProcessStat> stat = ReadProcessStat(child);
  REQUIRE(stat.has_value());
  CHECK(stat->state == 'Z');
  CHECK(ExitStatus::FromWaitStatus(stat->exit_code) == ExitStatus{7, 0, false});
  CHECK(ListChildren() == std::vector<pid_t>{child});
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(ListChildren().empty());
  CHECK_FALSE(ReadProcessStat(child).has_value());
}

}  // namespace
}  // namespace monarch
