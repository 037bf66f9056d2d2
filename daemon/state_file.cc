#include "daemon/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr std::string_view kMagic = "MNCSTATE";
constexpr size_t kHeadBytes = 8 + 4 + 4 + 8;
// An entry is a few hundred bytes.
constexpr size_t kFileBytesMax = 64 << 10;

// FNV-1a: against damage, not against forgery, which the owner and the mode are for.
uint64_t Checksum(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

void PutLittle(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t GetLittle(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("write", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/'));
  const ScopedFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return ErrnoStatus(absl::StrCat("sync ", directory), errno);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> EncodeState(const Value& value) {
  MONARCH_ASSIGN_OR_RETURN(const std::string body, EncodeValue(value));
  std::string out(kMagic);
  PutLittle(&out, kStateVersion, 4);
  PutLittle(&out, body.size(), 4);
  PutLittle(&out, Checksum(body), 8);
  return out + body;
}

absl::StatusOr<Value> DecodeState(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) return absl::DataLossError("not a state file of monarchd");
  if (bytes.size() < kHeadBytes) return absl::DataLossError("truncated");
  const uint64_t version = GetLittle(bytes.substr(8, 4));
  if (version != kStateVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("state of version ", version, ", this monarchd reads version ", kStateVersion));
  }
  const uint64_t length = GetLittle(bytes.substr(12, 4));
  const uint64_t checksum = GetLittle(bytes.substr(16, 8));
  bytes.remove_prefix(kHeadBytes);
  if (bytes.size() != length) {
    return absl::DataLossError(
        absl::StrCat("truncated, or too long: ", bytes.size(), " bytes in place of ", length));
  }
  if (Checksum(bytes) != checksum) return absl::DataLossError("damaged: its checksum is wrong");
  return DecodeValue(bytes);
}

absl::Status WriteStateFile(const std::string& path, const Value& value) {
  MONARCH_ASSIGN_OR_RETURN(const std::string bytes, EncodeState(value));
  const std::string beside = path + ".new";
  unlink(beside.c_str());
  const ScopedFd fd(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(absl::StrCat("make ", beside), errno);
  MONARCH_RETURN_IF_ERROR(WriteAll(fd.get(), bytes));
  if (fsync(fd.get()) != 0) return ErrnoStatus(absl::StrCat("sync ", beside), errno);
  if (rename(beside.c_str(), path.c_str()) != 0) return ErrnoStatus(absl::StrCat("name ", path), errno);
  return SyncDirectoryOf(path);
}

absl::StatusOr<Value> ReadStateFile(const std::string& path) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ELOOP) return absl::PermissionDeniedError("a link");
  if (!fd.valid()) return ErrnoStatus(absl::StrCat("open ", path), errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(absl::StrCat("look at ", path), errno);
  if (!S_ISREG(info.st_mode)) return absl::PermissionDeniedError("not a file");
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("owned by user ", info.st_uid, ", not ", geteuid()));
  }
  if ((info.st_mode & 077) != 0) return absl::PermissionDeniedError("open to others: its mode is not 0600");
  if (static_cast<size_t>(info.st_size) > kFileBytesMax) return absl::DataLossError("too long");
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = read(fd.get(), bytes.data() + got, bytes.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return ErrnoStatus(absl::StrCat("read ", path), errno);
    if (more == 0) break;
    got += static_cast<size_t>(more);
  }
  bytes.resize(got);
  return DecodeState(bytes);
}

}  // namespace monarch
