#include "daemon/launcher/session_cgroup.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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

// A directory tree that stands in for a delegated cgroup, with the files that the kernel would make.
class FakeTree {
 public:
  explicit FakeTree(const char* controllers) {
    REQUIRE(mkdtemp(root_) != nullptr);
    Write("/cgroup.controllers", controllers);
    Write("/cgroup.subtree_control", "");
    cgroup = SessionCgroup::CreateIn(root_, session_).value();
    Write(Below() + "/cgroup.subtree_control", "");
  }
  ~FakeTree() { std::filesystem::remove_all(root_); }

  std::string Root() const { return root_; }
  std::string Below() const { return cgroup.path().substr(std::string(root_).size()); }
  void Write(const std::string& file, const std::string& text) { std::ofstream(root_ + file) << text; }
  std::string Read(const std::string& file) const {
    std::ifstream in(root_ + file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  void MakeLeaf(const std::vector<const char*>& files) {
    REQUIRE(mkdir((root_ + Leaf()).c_str(), 0755) == 0);
    for (const char* file : files) Write(Leaf() + file, "max");
  }
  std::string Leaf() const { return Below() + "/proc-7.2"; }

  const ProcAddress proc{HostId::Random(), 7, 2};
  SessionCgroup cgroup;

 private:
  char root_[64] = "/tmp/monarch_cgroup_XXXXXX";
  const SessionId session_ = SessionId::Random();
};

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("LimitsAWorkerInItsLeafAndEnablesTheControllersAboveIt") {
  FakeTree tree("cpu memory pids\n");
  tree.MakeLeaf({"/memory.max", "/memory.swap.max", "/memory.oom.group", "/pids.max"});
  REQUIRE(tree.cgroup.Limit(tree.proc, {64 << 20, 30}) == absl::OkStatus());
  CHECK(tree.Read("/cgroup.subtree_control") == "+pids");  // the last write to what stands for the kernel's
  CHECK(tree.Read(tree.Below() + "/cgroup.subtree_control") == "+pids");
  CHECK(tree.Read(tree.Leaf() + "/memory.max") == "67108864");
  CHECK(tree.Read(tree.Leaf() + "/memory.swap.max") == "0");
  CHECK(tree.Read(tree.Leaf() + "/memory.oom.group") == "1");
  CHECK(tree.Read(tree.Leaf() + "/pids.max") == "30");
}

TEST_CASE("SetsOnlyTheLimitThatIsWanted") {
  FakeTree tree("memory\n");
  tree.MakeLeaf({"/memory.max", "/memory.oom.group"});
  CHECK(tree.cgroup.Limit(tree.proc, {4096, 0}) == absl::OkStatus());
  CHECK(tree.Read("/cgroup.subtree_control") == "+memory");
}

TEST_CASE("WithoutLimitsNothingIsTouched") {
  FakeTree tree("");
  CHECK(tree.cgroup.Limit(tree.proc, {}) == absl::OkStatus());
  CHECK(tree.cgroup.Members().empty());
  CHECK(SessionCgroup().Limit(tree.proc, {}) == absl::OkStatus());
}

TEST_CASE("SaysWhatIsMissingForALimit") {
  FakeTree tree("cpu io\n");
  CHECK_THAT(ErrorOf(tree.cgroup.Limit(tree.proc, {4096, 0})),
             Catch::StartsWith("no memory controller in ") &&
                 Catch::EndsWith("/cgroup.controllers, which has: cpu io"));
  CHECK_THAT(ErrorOf(tree.cgroup.Limit(tree.proc, {0, 5})), Catch::StartsWith("no pids controller in "));
  CHECK(ErrorOf(SessionCgroup::Missing("read only").Limit(tree.proc, {4096, 0})) ==
        "no cgroup of version 2 that the session may write: read only");
  tree.Write("/cgroup.controllers", "memory");
  // The file is not there: the kernel made no controller's.
  CHECK_THAT(
      ErrorOf(tree.cgroup.Limit(tree.proc, {4096, 0})),
      Catch::StartsWith("write 4096 to ") && Catch::EndsWith("/memory.max: No such file or directory"));
}

TEST_CASE("DividesACgroupThatItHasForItself") {
  FakeTree tree("memory pids\n");
  tree.Write("/cgroup.procs", std::to_string(getpid()) + "\n");
  std::filesystem::create_directory(tree.Root() + "/monarch-launcher");
  tree.Write("/monarch-launcher/cgroup.procs", "");
  REQUIRE(tree.cgroup.Divide() == absl::OkStatus());
  CHECK(tree.Read("/monarch-launcher/cgroup.procs") == "0");
  CHECK(tree.Read(tree.Below() + "/cgroup.subtree_control") == "+pids");
}

TEST_CASE("LeavesACgroupWithOthersAsItIs") {
  FakeTree tree("memory pids\n");
  tree.Write("/cgroup.procs", std::to_string(getpid()) + "\n1\n");
  CHECK_THAT(ErrorOf(tree.cgroup.Divide()), Catch::EndsWith(" is not the session's alone"));
  CHECK(tree.Read("/cgroup.subtree_control").empty());
  CHECK_FALSE(SessionCgroup().Divide().ok());
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
