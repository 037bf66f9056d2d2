#include "daemon/launcher/session_cgroup.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

namespace monarch {
namespace {

constexpr char kMountinfo[] =
    "25 30 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
    "26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

TEST_CASE("FindsTheOwnDirectory") {
  CHECK(OwnCgroupDirectory(kMountinfo, "1:cpu:/x\n0::/\n").value() == "/sys/fs/cgroup/unified");
  CHECK(OwnCgroupDirectory(kMountinfo, "0::/a/b\n").value() == "/sys/fs/cgroup/unified/a/b");
  CHECK(OwnCgroupDirectory("26 25 0:23 /a /cg rw - cgroup2 c rw\n", "0::/a/b\n").value() == "/cg/b");
}

TEST_CASE("FindsNoneWhereThereIsNone") {
  CHECK_FALSE(OwnCgroupDirectory(kMountinfo, "1:cpu:/x\n").ok());
  CHECK_FALSE(OwnCgroupDirectory("25 30 0:22 / /sys ro - tmpfs tmpfs ro\n", "0::/\n").ok());
  CHECK_FALSE(OwnCgroupDirectory("", "").ok());
}

TEST_CASE("DoesNothingWithoutACgroup") {
  SessionCgroup none;
  CHECK_FALSE(none.exists());
  CHECK(none.ProcsFileFor({HostId::Random(), 1, 1}).empty());
  CHECK(none.Members().empty());
  CHECK_FALSE(none.Kill());
  CHECK(none.Remove());
}

TEST_CASE("MakesAndRemovesALeafPerWorker") {
  char root[] = "/tmp/monarch_cgroup_XXXXXX";
  REQUIRE(mkdtemp(root) != nullptr);
  absl::StatusOr<SessionCgroup> cgroup = SessionCgroup::CreateIn(root, SessionId::Random());
  REQUIRE(cgroup.ok());
  const ProcAddress proc{HostId::Random(), 7, 2};
  const std::string procs = cgroup->ProcsFileFor(proc);
  CHECK(procs == cgroup->path() + "/proc-7.2/cgroup.procs");
  // Stands in for the kernel's file.
  std::ofstream(procs) << "12\n34\n";
  CHECK(cgroup->Members() == std::vector<pid_t>{12, 34});
  CHECK_FALSE(cgroup->Kill());
  CHECK_FALSE(cgroup->Remove());
  unlink(procs.c_str());
  CHECK(cgroup->Remove());
  CHECK(rmdir(root) == 0);
}

TEST_CASE("KillsItsMembersWhereTheKernelHasCgroups") {
  absl::StatusOr<SessionCgroup> cgroup = SessionCgroup::Create(SessionId::Random());
  if (!cgroup.ok()) return;  // the other cases cover a host without
  const std::string procs = cgroup->ProcsFileFor({HostId::Random(), 1, 1});
  REQUIRE_FALSE(procs.empty());
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::ofstream(procs) << "0\n";
    [[maybe_unused]] const ssize_t written = write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  CHECK(cgroup->Members() == std::vector<pid_t>{child});
  if (!cgroup->Kill()) kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(cgroup->Remove());
}

}  // namespace
}  // namespace monarch
