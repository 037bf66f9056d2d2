#include "daemon/state_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

namespace monarch {
namespace {

const Value kValue = Value::Map{{"pid", 17}, {"token", Value::Bytes{"abc"}}};

struct Folder {
  Folder() {
    char name[] = "/tmp/state-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() {
    unlink(file().c_str());
    rmdir(path.c_str());
  }
  std::string file() const { return path + "/one.state"; }
  void Write(const std::string& bytes, mode_t mode = 0600) const {
    unlink(file().c_str());
    std::ofstream(file()) << bytes;
    chmod(file().c_str(), mode);
  }
  std::string path;
};

TEST_CASE("a state comes back as it was") {
  const auto bytes = EncodeState(kValue);
  REQUIRE(bytes.ok());
  const auto value = DecodeState(*bytes);
  REQUIRE(value.ok());
  CHECK(*value == kValue);
}

TEST_CASE("a state cut off anywhere is refused") {
  const std::string bytes = *EncodeState(kValue);
  for (size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    CHECK(absl::IsDataLoss(DecodeState(bytes.substr(0, length)).status()));
  }
  CHECK(absl::IsDataLoss(DecodeState(bytes + "x").status()));
}

TEST_CASE("a state with any bit turned is refused") {
  const std::string bytes = *EncodeState(kValue);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    CAPTURE(bit);
    CHECK_FALSE(DecodeState(damaged).ok());
  }
}

TEST_CASE("a state of a later version is refused by name") {
  std::string bytes = *EncodeState(kValue);
  bytes[8] = 2;
  const absl::Status status = DecodeState(bytes).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(std::string(status.message()) == "state of version 2, this monarchd reads version 1");
}

TEST_CASE("a state file is this user's alone and replaced as a whole") {
  const Folder folder;
  CHECK(absl::IsNotFound(ReadStateFile(folder.file()).status()));
  REQUIRE(WriteStateFile(folder.file(), Value::Map{{"pid", 1}}).ok());
  REQUIRE(WriteStateFile(folder.file(), kValue).ok());
  struct stat info {};
  REQUIRE(stat(folder.file().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(access((folder.file() + ".new").c_str(), F_OK) != 0);
  const auto value = ReadStateFile(folder.file());
  REQUIRE(value.ok());
  CHECK(*value == kValue);
}

TEST_CASE("a state file that others could have written is refused") {
  const Folder folder;
  folder.Write(*EncodeState(kValue), 0666);
  CHECK(absl::IsPermissionDenied(ReadStateFile(folder.file()).status()));
  unlink(folder.file().c_str());
  REQUIRE(symlink("/etc/passwd", folder.file().c_str()) == 0);
  CHECK(absl::IsPermissionDenied(ReadStateFile(folder.file()).status()));
  folder.Write(std::string(1 << 20, 'x'));
  CHECK(absl::IsDataLoss(ReadStateFile(folder.file()).status()));
}

}  // namespace
}  // namespace monarch
