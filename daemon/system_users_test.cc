#include "daemon/system_users.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

namespace monarch {
namespace {

// Threading: confined to one thread.
struct Folder {
  Folder() {
    char name[] = "/tmp/monarch_users_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST_CASE("RootIsServedOnlyIfAllowed") {
  const absl::Status refused = CheckSystemClient(0, getpid(), false);
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(std::string(refused.message()).find("--allow-root") != std::string::npos);
}

TEST_CASE("AUserHasADirectoryOfItsOwn") {
  const Folder folder;
  const absl::StatusOr<std::string> made = PrepareUserDirectory(folder.path, geteuid());
  REQUIRE(made.ok());
  CHECK(*made == folder.path + "/users/" + std::to_string(geteuid()));
  struct stat info;
  REQUIRE(stat(made->c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);
  CHECK(info.st_uid == geteuid());
  CHECK(*PrepareUserDirectory(folder.path, geteuid()) == *made);
}

TEST_CASE("ADirectoryIsNotGivenAwayThroughALink") {
  const Folder folder;
  std::filesystem::create_directory(folder.path + "/users");
  std::filesystem::create_directory(folder.path + "/secret");
  std::filesystem::create_directory_symlink(folder.path + "/secret",
                                            folder.path + "/users/" + std::to_string(geteuid()));
  CHECK_FALSE(PrepareUserDirectory(folder.path, geteuid()).ok());
}

}  // namespace
}  // namespace monarch
