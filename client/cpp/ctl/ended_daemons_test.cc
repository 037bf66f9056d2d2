#include "client/cpp/ctl/ended_daemons.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "proto/failure_file.h"

namespace monarch::ctl {
namespace {

// Threading: confined to one thread.
class Folder {
 public:
  Folder() {
    char path[] = "/tmp/ended_daemons_test.XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

 private:
  std::string path_;
};

std::string FileOf(const std::string& session) {
  v1::GetFailuresResponse failures;
  failures.add_failures()->set_session(session);
  return EncodeFailureFile(failures);
}

Snapshot At(const std::string& directory, absl::Status answer) {
  Snapshot snapshot;
  snapshot.place.directory = directory;
  snapshot.answer = std::move(answer);
  return snapshot;
}

TEST_CASE("EndedDaemonsAreAppended") {
  const Folder folder;
  folder.Write("failures-a", FileOf("one"));
  folder.Write("failures-b.new", FileOf("unfinished"));
  std::vector<Snapshot> snapshots;
  AddEndedDaemons({folder.path(), "/nowhere"}, &snapshots);
  REQUIRE(snapshots.size() == 1);
  CHECK(snapshots[0].place.directory == folder.path() + "/a");
  CHECK((snapshots[0].ended && snapshots[0].answer.ok()));
  CHECK(snapshots[0].failures.failures(0).session() == "one");
}

TEST_CASE("AFileOfADaemonThatIsAskedStandsForNoAnswerOnly") {
  const Folder folder;
  for (const char* name : {"failures-up", "failures-silent", "failures-gone"})
    folder.Write(name, FileOf(name));
  std::vector<Snapshot> snapshots = {At(folder.path() + "/up", absl::OkStatus()),
                                     At(folder.path() + "/silent", absl::DeadlineExceededError("silent")),
                                     At(folder.path() + "/gone", absl::UnavailableError("nobody"))};
  AddEndedDaemons({folder.path()}, &snapshots);
  REQUIRE(snapshots.size() == 3);
  CHECK_FALSE(snapshots[0].ended);
  CHECK(absl::IsDeadlineExceeded(snapshots[1].answer));
  CHECK((snapshots[2].ended && snapshots[2].answer.ok()));
  CHECK(snapshots[2].failures.failures(0).session() == "failures-gone");
}

TEST_CASE("DamagedFilesAndLinksArePassedOver") {
  const Folder folder;
  folder.Write("failures-a", FileOf("cut").substr(0, 30));
  folder.Write("failures-b", "");
  folder.Write("other", FileOf("behind a link"));
  REQUIRE(symlink((folder.path() + "/other").c_str(), (folder.path() + "/failures-c").c_str()) == 0);
  std::filesystem::create_directory(folder.path() + "/failures-d");
  std::vector<Snapshot> snapshots;
  AddEndedDaemons({folder.path()}, &snapshots);
  CHECK(snapshots.empty());
}

}  // namespace
}  // namespace monarch::ctl
