#include "daemon/launcher/output_target.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <iterator>

namespace monarch {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct TempDir {
  TempDir() {
    char name[] = "/tmp/monarch_target_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~TempDir() {
    unlink((path + "/log").c_str());
    unlink((path + "/log.1").c_str());
    rmdir(path.c_str());
  }
  std::string path;
};

void WriteAll(OutputTarget& target, const std::string& chunk) {
  size_t written = 0;
  REQUIRE(target.Write(chunk, &written).ok());
  REQUIRE(written == chunk.size());
}

TEST_CASE("RotatesALogAtHalfOfItsLimit") {
  const TempDir dir;
  const std::unique_ptr<OutputTarget> log = MakeLogFileTarget(dir.path + "/log", 20);
  WriteAll(*log, "11111\n");
  WriteAll(*log, "222\n");
  WriteAll(*log, "3\n");
  CHECK(ReadAll(dir.path + "/log.1") == "11111\n222\n");
  CHECK(ReadAll(dir.path + "/log") == "3\n");
  WriteAll(*log, "444444444\n");
  CHECK(ReadAll(dir.path + "/log.1") == "3\n");
}

// As on a full disk, in this process. Threading: confined to its caller, whose SIGXFSZ it blocks.
class NoMoreThan {
 public:
  explicit NoMoreThan(rlim_t file_bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    sigset_t signal;
    sigemptyset(&signal);
    sigaddset(&signal, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal, nullptr);
    const rlimit limit{file_bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~NoMoreThan() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_CASE("AFullDiskCostsOutputAndNotTheLog") {
  const TempDir dir;
  const std::string line(999, 'x');
  {
    const NoMoreThan full(1500);
    size_t written = 0;
    const auto target = MakeLogFileTarget(dir.path + "/log", 1 << 20);
    for (int i = 0; i < 3; ++i) {
      std::string rest = line + "\n";
      while (!rest.empty()) {
        REQUIRE(target->Write(rest, &written).ok());
        rest.erase(0, written);
      }
    }
    CHECK(ReadAll(dir.path + "/log") == line + "\n" + line.substr(0, 500));
    const rlimit enough{RLIM_INFINITY, RLIM_INFINITY};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &enough) == 0);
    REQUIRE(target->Write("again\n", &written).ok());
  }
  CHECK(ReadAll(dir.path + "/log")
            .ends_with("x\n[monarch: 1500 bytes of output are missing here: there was no room]\nagain\n"));
}

TEST_CASE("AppendsToALogThatIsThere") {
  const TempDir dir;
  WriteAll(*MakeLogFileTarget(dir.path + "/log", 100), "old\n");
  WriteAll(*MakeLogFileTarget(dir.path + "/log", 100), "new\n");
  CHECK(ReadAll(dir.path + "/log") == "old\nnew\n");
  struct stat info {};
  REQUIRE(stat((dir.path + "/log").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("FollowsNoLinkAtTheLogsPlace") {
  const TempDir dir;
  REQUIRE(symlink("/dev/null", (dir.path + "/log").c_str()) == 0);
  size_t written = 0;
  CHECK_FALSE(MakeLogFileTarget(dir.path + "/log", 100)->Write("x\n", &written).ok());
}

TEST_CASE("AFullPipeHasNoRoomAndIsLeftBlocking") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const ScopedFd read_end(ends[0]);
  const ScopedFd keep(dup(ends[1]));
  const ScopedFd wake(eventfd(0, EFD_CLOEXEC));
  const std::unique_ptr<OutputTarget> target = MakeFdTarget(ScopedFd(ends[1]));
  const int capacity = fcntl(ends[1], F_GETPIPE_SZ);
  for (int i = 0; i < capacity / PIPE_BUF; ++i) {
    REQUIRE(target->WaitForRoom(wake.get()));
    WriteAll(*target, std::string(PIPE_BUF, 'x'));
  }
  REQUIRE(eventfd_write(wake.get(), 1) == 0);
  CHECK_FALSE(target->WaitForRoom(wake.get()));
  CHECK((fcntl(keep.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("AReaderThatIsGoneIsAnError") {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  close(ends[0]);
  const ScopedFd wake(eventfd(0, EFD_CLOEXEC));
  const std::unique_ptr<OutputTarget> target = MakeFdTarget(ScopedFd(ends[1]));
  CHECK(target->WaitForRoom(wake.get()));
  size_t written = 0;
  CHECK_FALSE(target->Write("x", &written).ok());
}

}  // namespace
}  // namespace monarch
