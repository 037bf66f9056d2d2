#include "client/cpp/ctl/daemon_finder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/scoped_fd.h"

namespace monarch::ctl {
namespace {

namespace fs = std::filesystem;

// A place of its own for run directories.
class Places {
 public:
  Places() {
    char name[] = "/tmp/ctlXXXXXX";
    root_ = mkdtemp(name);
    options_.system_directory = root_ + "/system";
    options_.runtime_directory = root_ + "/runtime";
    options_.temporary_directory = root_ + "/tmp";
    options_.uid = geteuid();
    fs::create_directories(options_.temporary_directory);
    MakeFolder(Parent());
  }
  ~Places() { fs::remove_all(root_); }

  const FinderOptions& options() const { return options_; }
  FinderOptions& options() { return options_; }
  std::string Parent() const { return absl::StrCat(options_.temporary_directory, "/monarch-", options_.uid); }

  static void MakeFolder(const std::string& path, mode_t mode = 0700) {
    fs::create_directories(path);
    REQUIRE(chmod(path.c_str(), mode) == 0);
  }

  // A run directory; its daemon lives for as long as the returned lock.
  static ScopedFd MakeDaemon(const std::string& path) {
    MakeFolder(path);
    ScopedFd lock(open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(lock.valid());
    REQUIRE(flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
    return lock;
  }

  std::vector<std::string> Find() const {
    std::vector<std::string> found;
    for (const DaemonPlace& place : FindDaemons(options_)) found.push_back(place.directory);
    return found;
  }

 private:
  std::string root_;
  FinderOptions options_;
};

using Found = std::vector<std::string>;

TEST_CASE("FindDaemons.FindsNothingWhereNothingIs") {
  Places places;
  CHECK(places.Find().empty());
}

TEST_CASE("FindDaemons.FindsPrivateDaemonsInBothFoldersSorted") {
  Places places;
  Places::MakeFolder(places.options().runtime_directory + "/monarch");
  const std::string in_runtime = places.options().runtime_directory + "/monarch/b";
  const ScopedFd one = Places::MakeDaemon(in_runtime);
  const ScopedFd two = Places::MakeDaemon(places.Parent() + "/z");
  const ScopedFd three = Places::MakeDaemon(places.Parent() + "/a");
  CHECK(places.Find() == Found{in_runtime, places.Parent() + "/a", places.Parent() + "/z"});
}

TEST_CASE("FindDaemons.LeavesOutDaemonsThatEnded") {
  Places places;
  { const ScopedFd lock = Places::MakeDaemon(places.Parent() + "/a"); }
  Places::MakeFolder(places.Parent() + "/without-lock");
  CHECK(places.Find().empty());
}

TEST_CASE("FindDaemons.LookingDoesNotKeepTheLock") {
  Places places;
  { const ScopedFd lock = Places::MakeDaemon(places.Parent() + "/a"); }
  CHECK(places.Find().empty());
  const ScopedFd again = Places::MakeDaemon(places.Parent() + "/a");
  CHECK(places.Find().size() == 1);
}

TEST_CASE("FindDaemons.PassesOverFoldersThatOthersMayWriteAndLinks") {
  Places places;
  const ScopedFd open_to_all = Places::MakeDaemon(places.Parent() + "/open");
  Places::MakeFolder(places.Parent() + "/open", 0770);
  const ScopedFd elsewhere = Places::MakeDaemon(places.options().temporary_directory + "/elsewhere");
  fs::create_directory_symlink(places.options().temporary_directory + "/elsewhere",
                               places.Parent() + "/link");
  CHECK(places.Find().empty());

  const ScopedFd good = Places::MakeDaemon(places.Parent() + "/good");
  CHECK(places.Find().size() == 1);
  Places::MakeFolder(places.Parent(), 0755);
  CHECK(places.Find().empty());
}

TEST_CASE("FindDaemons.FindsTheSystemDaemonByItsSocket") {
  Places places;
  const std::string folder = places.options().system_directory;
  Places::MakeFolder(folder, 0755);
  CHECK(places.Find().empty());
  const ScopedFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder + "/grpc.sock").c_str(), sizeof address.sun_path - 1);
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(places.Find() == Found{folder});
}

TEST_CASE("FindDaemons.StopsAtTheLimit") {
  Places places;
  places.options().daemons_max = 1;
  const ScopedFd one = Places::MakeDaemon(places.Parent() + "/a");
  const ScopedFd two = Places::MakeDaemon(places.Parent() + "/b");
  CHECK(places.Find() == Found{places.Parent() + "/a"});
}

TEST_CASE("PlaceFromAddress.TakesUnixAndADirectory") {
  REQUIRE(PlaceFromAddress("unix:/run/monarch/").ok());
  CHECK(PlaceFromAddress("unix:/run/monarch/")->directory == "/run/monarch");
  CHECK(PlaceFromAddress("unix:/run/monarch")->Address() == "unix:/run/monarch");
  CHECK(PlaceFromAddress("unix:/run/monarch")->Socket() == "unix:/run/monarch/grpc.sock");
  for (const char* wrong : {"", "unix:", "/run/monarch", "tcp:host:1"}) {
    CHECK(absl::IsInvalidArgument(PlaceFromAddress(wrong).status()));
  }
}

}  // namespace
}  // namespace monarch::ctl
