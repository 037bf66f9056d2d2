#include "base/check.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <string>

namespace monarch {
namespace {

struct Death {
  int wait_status = 0;
  std::string output;
};

Death FailACheckInAChild() {
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    // Catch2's handler would report the abort as the parent's failure.
    std::signal(SIGABRT, SIG_DFL);
    dup2(pipe_fds[1], STDERR_FILENO);
    MONARCH_CHECK(1 + 1 == 3);
    _exit(0);
  }
  close(pipe_fds[1]);
  Death death;
  char buffer[256];
  for (ssize_t got; (got = read(pipe_fds[0], buffer, sizeof(buffer))) > 0;) {
    death.output.append(buffer, static_cast<size_t>(got));
  }
  close(pipe_fds[0]);
  REQUIRE(waitpid(pid, &death.wait_status, 0) == pid);
  return death;
}

TEST_CASE("AFailedCheckNamesItsPlaceAndAborts", "[check]") {
  const Death death = FailACheckInAChild();
  REQUIRE(WIFSIGNALED(death.wait_status));
  CHECK(WTERMSIG(death.wait_status) == SIGABRT);
  CHECK(death.output.find("base/check_test.cc:") != std::string::npos);
  CHECK(death.output.find("check failed: 1 + 1 == 3\n") != std::string::npos);
}

TEST_CASE("ATrueCheckEvaluatesItsConditionOnce", "[check]") {
  int evaluated = 0;
  MONARCH_CHECK(++evaluated == 1);
  CHECK(evaluated == 1);
}

}  // namespace
}  // namespace monarch
