#include "daemon/sweeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <fstream>

namespace monarch {
namespace {

struct Family {
  pid_t child = -1;
  pid_t grandchild = -1;
};

// A child, and a child of it that leads a session of its own, both in the cgroup of `procs` and without a
// mark.
Family Fork(const std::string& procs) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Family family;
  family.child = fork();
  REQUIRE(family.child >= 0);
  if (family.child == 0) {
    std::ofstream(procs) << "0\n";
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      setsid();
    } else if (write(ends[1], &grandchild, sizeof(grandchild)) < 0) {
      _exit(1);
    }
    for (;;) pause();
  }
  REQUIRE(read(ends[0], &family.grandchild, sizeof(family.grandchild)) == sizeof(family.grandchild));
  close(ends[0]);
  close(ends[1]);
  return family;
}

bool Runs(pid_t pid) { return kill(pid, 0) == 0; }

TEST_CASE("KillsTheMembersOfTheCgroupAndRemovesIt") {
  const SessionId session = SessionId::Random();
  absl::StatusOr<SessionCgroup> cgroup = SessionCgroup::Create(session);
  if (!cgroup.ok()) {
    WARN("no writable cgroup of version 2 here");
    return;
  }
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  const Family family = Fork(cgroup->ProcsFileFor({HostId::Random(), 3, 1}));
  const std::unique_ptr<EventLoop> loop = MakeEpollEventLoop().value();
  ProcessSweeper sweeper(loop.get());
  // Those alone would not be found by their parent.
  sweeper.AddKnownChild(family.child);
  bool done = false;
  sweeper.Sweep(session, [&](int) {
    done = true;
    loop->Stop();
  });
  loop->Run();
  CHECK(done);
  CHECK_FALSE(SessionCgroup::Find(session).exists());
  int status = 0;
  REQUIRE(waitpid(family.child, &status, 0) == family.child);
  CHECK(WTERMSIG(status) == SIGKILL);
  waitpid(family.grandchild, nullptr, 0);
  CHECK_FALSE(Runs(family.grandchild));
}

TEST_CASE("ASessionThatLeftNothingIsDoneAtOnce") {
  const std::unique_ptr<EventLoop> loop = MakeEpollEventLoop().value();
  ProcessSweeper sweeper(loop.get());
  int killed = -1;
  sweeper.Sweep(SessionId::Random(), [&](int count) {
    killed = count;
    loop->Stop();
  });
  loop->Run();
  CHECK(killed == 0);
}

}  // namespace
}  // namespace monarch
