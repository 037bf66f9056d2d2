#include "daemon/launcher/leftovers.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>

#include "base/ids.h"

namespace monarch {
namespace {

ProcessStat Process(pid_t pid, pid_t parent, char state = 'S') { return {pid, state, parent, 0}; }

TEST_CASE("FindsDescendantsAtAnyDepth") {
  const std::vector<ProcessStat> processes = {Process(1, 0),        Process(10, 1),  Process(11, 10),
                                              Process(12, 11, 'Z'), Process(13, 12), Process(20, 1),
                                              Process(21, 20)};
  std::vector<pid_t> found = DescendantsOf(10, processes);
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<pid_t>{11, 13});
  CHECK(DescendantsOf(99, processes).empty());
}

TEST_CASE("EndsOnACircle") {
  const std::vector<ProcessStat> processes = {Process(2, 3), Process(3, 2)};
  CHECK(DescendantsOf(2, processes) == std::vector<pid_t>{3});
}

TEST_CASE("FindsDeadChildren") {
  const std::vector<ProcessStat> processes = {Process(11, 10, 'Z'), Process(12, 10), Process(13, 12, 'Z')};
  CHECK(DeadChildrenOf(10, processes) == std::vector<pid_t>{11});
}

// A child whose environment is `entry`.
struct Marked {
  explicit Marked(std::string entry) {
    // Closed by the exec: tells that the new environment is in place.
    int ready[2];
    REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
    char* argv[] = {const_cast<char*>("sleep"), const_cast<char*>("600"), nullptr};
    char* envp[] = {const_cast<char*>("A=b"), entry.data(), nullptr};
    pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      execve("/bin/sleep", argv, envp);
      _exit(127);
    }
    close(ready[1]);
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 0);
    close(ready[0]);
  }
  int Wait() {
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return status;
  }
  pid_t pid;
};

TEST_CASE("FindsMarkedProcessesAndKillsThem") {
  const std::string mark = SessionMark(SessionId::Random().ToHex());
  Marked one(mark);
  Marked other(mark + "0");
  CHECK(MarkedProcesses(mark, ListProcesses()) == std::vector<pid_t>{one.pid});
  CHECK_FALSE(KillPinned(one.pid, [](pid_t) { return false; }));
  CHECK(KillPinned(one.pid, [&](pid_t pid) { return CarriesMark(pid, mark); }));
  CHECK(WTERMSIG(one.Wait()) == SIGKILL);
  CHECK(MarkedProcesses(mark, ListProcesses()).empty());
  kill(other.pid, SIGKILL);
  other.Wait();
}

TEST_CASE("AProcessThatIsGoneCarriesNothing") {
  Marked one("X=y");
  kill(one.pid, SIGKILL);
  one.Wait();
  CHECK_FALSE(CarriesMark(one.pid, "X=y"));
  CHECK_FALSE(KillPinned(one.pid, [](pid_t) { return true; }));
}

}  // namespace
}  // namespace monarch
