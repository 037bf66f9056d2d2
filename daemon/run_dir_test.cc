#include "daemon/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/ids.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

struct TempDir {
  TempDir() {
    char path[] = "/tmp/mrdXXXXXX";
    path_ = mkdtemp(path);
    setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string path_;
};

}  // namespace

TEST_CASE("PrivateDirectoryIsOursAndGoesAway") {
  TempDir temp;
  std::string path;
  {
    auto dir = RunDir::CreatePrivate();
    REQUIRE(dir.ok());
    path = (*dir)->path();
    CHECK(path.find(temp.path_ + "/monarch/") == 0);
    struct stat info;
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    CHECK(RemoveStaleRunDirs(temp.path_ + "/monarch") == 0);
  }
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("DirectoryOfADeadDaemonIsRemoved") {
  TempDir temp;
  REQUIRE(EnsureOwnDirectory(temp.path_ + "/monarch").ok());
  const std::string stale = temp.path_ + "/monarch/" + Id128::Random().ToHex();
  REQUIRE(mkdir(stale.c_str(), 0700) == 0);
  std::ofstream(stale + "/lock").close();
  REQUIRE(mkdir((temp.path_ + "/monarch/unrelated").c_str(), 0700) == 0);
  auto dir = RunDir::CreatePrivate();
  REQUIRE(dir.ok());
  CHECK(access(stale.c_str(), F_OK) != 0);
  CHECK(access((temp.path_ + "/monarch/unrelated").c_str(), F_OK) == 0);
}

TEST_CASE("DirectoriesBeingMadeAreLeftAlone") {
  TempDir temp;
  REQUIRE(EnsureOwnDirectory(temp.path_ + "/monarch").ok());
  std::atomic<bool> done{false};
  std::thread remover([&] {
    while (!done) RemoveStaleRunDirs(temp.path_ + "/monarch");
  });
  for (int i = 0; i < 300; ++i) {
    auto dir = RunDir::CreatePrivate();
    if (!dir.ok()) FAIL_CHECK(dir.status().ToString());
    if (dir.ok()) CHECK(access(((*dir)->path() + "/lock").c_str(), F_OK) == 0);
  }
  done = true;
  remover.join();
}

TEST_CASE("LogsOfAKilledDaemonsWorkersGo") {
  TempDir temp;
  const std::string path = temp.path_ + "/d";
  REQUIRE(EnsureOwnDirectory(path).ok());
  std::ofstream(path + "/workers-0123abcd.log") << "x";
  std::ofstream(path + "/monarchd.log") << "x";
  REQUIRE(RunDir::Open(path).ok());
  CHECK(access((path + "/workers-0123abcd.log").c_str(), F_OK) != 0);
  CHECK(access((path + "/monarchd.log").c_str(), F_OK) == 0);
}

TEST_CASE("LogsOfSessionsThatMayGoOnStay") {
  TempDir temp;
  const std::string path = temp.path_ + "/d";
  REQUIRE(EnsureOwnDirectory(path).ok());
  const std::string session = Id128::Random().ToHex();
  std::ofstream(path + "/session-" + session + ".state") << "x";
  std::ofstream(path + "/" + WorkerLogName(session)) << "x";
  std::ofstream(path + "/workers-ended000.log") << "x";
  REQUIRE(RunDir::Open(path).ok());
  CHECK(access((path + "/" + WorkerLogName(session)).c_str(), F_OK) == 0);
  CHECK(access((path + "/workers-ended000.log").c_str(), F_OK) != 0);
}

TEST_CASE("SecondDaemonIsRefused") {
  TempDir temp;
  auto first = RunDir::Open(temp.path_ + "/d");
  REQUIRE(first.ok());
  CHECK(RunDir::Open(temp.path_ + "/d").status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("WhoLooksWhetherADaemonLivesKeepsNoneFromStarting") {
  TempDir temp;
  const std::string path = temp.path_ + "/shared";
  REQUIRE(RunDir::Open(path).ok());
  std::atomic<bool> done{false};
  std::thread looker([&] {
    while (!done) {
      const ScopedFd fd(open((path + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
      flock(fd.get(), LOCK_SH | LOCK_NB);
    }
  });
  int opened = 0;
  for (int i = 0; i < 500; ++i) opened += RunDir::Open(path).ok() ? 1 : 0;
  done = true;
  looker.join();
  CHECK(opened == 500);
}

TEST_CASE("LinksAndOpenDirectoriesAreRefused") {
  TempDir temp;
  REQUIRE(symlink("/tmp", (temp.path_ + "/link").c_str()) == 0);
  CHECK_FALSE(RunDir::Open(temp.path_ + "/link").ok());
  REQUIRE(mkdir((temp.path_ + "/open").c_str(), 0755) == 0);
  CHECK(EnsureOwnDirectory(temp.path_ + "/open").code() == absl::StatusCode::kPermissionDenied);
}

}  // namespace monarch
