#include "daemon/launcher/memory_watch.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/ids.h"
#include "daemon/launcher/session_cgroup.h"

namespace monarch {
namespace {

constexpr char kFile[] = "cgroup.events";  // has the same means as memory.events, and needs no controller

// A cgroup below this process's. Threading: confined to one thread.
class TestCgroup {
 public:
  TestCgroup() {
    std::ifstream mounts("/proc/self/mountinfo");
    std::ifstream own("/proc/self/cgroup");
    const auto root = OwnCgroupDirectory(std::string(std::istreambuf_iterator<char>(mounts), {}),
                                         std::string(std::istreambuf_iterator<char>(own), {}));
    const std::string path = root.value_or("/nowhere") + "/monarch-test-" + Id128::Random().ToHex();
    if (mkdir(path.c_str(), 0755) == 0) path_ = path;
  }
  ~TestCgroup() {
    if (child_ > 0) Leave();
    if (!path_.empty()) rmdir(path_.c_str());
  }
  // Version 2 is not mounted, or not writable.
  bool missing() const { return path_.empty(); }
  const std::string& path() const { return path_; }
  // Its first member comes: an event.
  void Enter() {
    child_ = fork();
    if (child_ == 0) {
      pause();
      _exit(0);
    }
    std::ofstream(path_ + "/cgroup.procs") << child_ << std::flush;
  }
  void Leave() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  std::string path_;
  pid_t child_ = 0;
};

TEST_CASE("TellsEachTimeWhichCgroupHasCounted") {
  TestCgroup one;
  TestCgroup other;
  if (one.missing()) return;
  auto loop = *MakeEpollEventLoop();
  std::vector<std::string> told;
  MemoryWatch watch(
      loop.get(),
      [&](const std::string& cgroup) {
        told.push_back(cgroup);
        if (told.size() == 1) return other.Leave();
        loop->Stop();
      },
      kFile);
  REQUIRE(watch.Add(one.path()).ok());
  REQUIRE(watch.Add(other.path()).ok());
  loop->Post([&] { other.Enter(); });
  loop->Run();
  CHECK(told == std::vector<std::string>{other.path(), other.path()});
}

TEST_CASE("IsSilentOfWhatWasTakenAway") {
  TestCgroup one;
  TestCgroup other;
  if (one.missing()) return;
  auto loop = *MakeEpollEventLoop();
  std::vector<std::string> told;
  MemoryWatch watch(
      loop.get(),
      [&](const std::string& cgroup) {
        told.push_back(cgroup);
        loop->Stop();
      },
      kFile);
  REQUIRE(watch.Add(one.path()).ok());
  REQUIRE(watch.Add(other.path()).ok());
  watch.Remove("/never/added");
  loop->Post([&] {
    one.Enter();
    watch.Remove(one.path());
    other.Enter();
  });
  loop->Run();
  CHECK(told == std::vector<std::string>{other.path()});
}

TEST_CASE("ACgroupWithoutACountCannotBeWatched") {
  auto loop = *MakeEpollEventLoop();
  MemoryWatch watch(loop.get(), [](const std::string&) {});
  const absl::Status added = watch.Add("/proc/self");
  CHECK(absl::IsNotFound(added));
  CHECK(std::string(added.message()).find("watch /proc/self/memory.events") == 0);
}

}  // namespace
}  // namespace monarch
