#include <dlfcn.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/handshake.h"
#include "client/cpp/runtime/runtime.h"
#include "client/cpp/runtime/start_on.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(5);
constexpr const char kSystemSocket[] = "/run/monarch/native.sock";
constexpr const char kUnixPrefix[] = "unix:";
constexpr int kChildFd = 3;
// What a private daemon may say before it has its log; the rest is lost.
constexpr size_t kStderrBytesMax = 16 << 10;

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string DirOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

bool IsExecutable(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size <= 0 ? "" : std::string(path, static_cast<size_t>(size));
}

// Beside the library first: it is the one of the same version.
absl::StatusOr<std::string> FindMonarchd(const std::string& wanted) {
  if (!wanted.empty()) {
    if (IsExecutable(wanted)) return wanted;
    return absl::NotFoundError(absl::StrCat("monarchd: ", wanted, " is not an executable file"));
  }
  std::vector<std::string> candidates;
  if (std::string path = Environment("MONARCHD"); !path.empty()) candidates.push_back(std::move(path));
  static const char kMarker = 0;
  Dl_info library = {};
  std::vector<std::string> dirs;
  if (dladdr(&kMarker, &library) != 0 && library.dli_fname != nullptr)
    dirs.push_back(DirOf(library.dli_fname));
  if (const std::string own = OwnPath(); !own.empty()) dirs.push_back(DirOf(own));
  for (const std::string& dir : dirs) {
    candidates.push_back(absl::StrCat(dir, "/bin/monarchd"));
    candidates.push_back(absl::StrCat(dir, "/monarchd"));
  }
  for (const auto dir : absl::StrSplit(Environment("PATH"), ':', absl::SkipEmpty())) {
    candidates.push_back(absl::StrCat(dir, "/monarchd"));
  }
  for (const std::string& candidate : candidates) {
    if (IsExecutable(candidate)) return candidate;
  }
  return absl::UnavailableError(
      "no monarchd: none runs on this host, and none was found beside the library, beside the program or on "
      "PATH");
}

// posix_spawn's settings for a private daemon: a session and signals of its own, and no file but its socket.
// Threading: confined to its user.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  absl::Status Fill(int socket, int stderr_fd) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    const int errors[] = {
        posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0),
        posix_spawn_file_actions_addopen(&files_, 1, "/dev/null", O_WRONLY, 0),
        posix_spawn_file_actions_adddup2(&files_, stderr_fd, 2),
        posix_spawn_file_actions_adddup2(&files_, socket, kChildFd),
        posix_spawn_file_actions_addclosefrom_np(&files_, kChildFd + 1),
        posix_spawnattr_setsigmask(&attributes_, &none),
        posix_spawnattr_setsigdefault(&attributes_, &all),
        posix_spawnattr_setflags(&attributes_,
                                 POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF),
    };
    for (const int error : errors) {
      if (error != 0) return ErrnoStatus("posix_spawn settings", error);
    }
    return absl::OkStatus();
  }
  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

// A file of fixed size for the child's stderr: a pipe that nobody reads would stop it.
absl::StatusOr<ScopedFd> MakeStderrFile() {
  ScopedFd fd(memfd_create("monarchd-stderr", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create", errno);
  if (ftruncate(fd.get(), kStderrBytesMax) != 0) return ErrnoStatus("ftruncate", errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0)
    return ErrnoStatus("F_ADD_SEALS", errno);
  return fd;
}

std::string ReadStderrFile(int fd) {
  std::string text(kStderrBytesMax, '\0');
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  text.resize(std::min(text.size(), text.find('\0')));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

struct PrivateDaemon {
  PacketSocket socket;
  ClientProcess process;
  ScopedFd stderr_file;
};

absl::StatusOr<PrivateDaemon> SpawnPrivate(const std::string& wanted) {
  MONARCH_ASSIGN_OR_RETURN(const std::string path, FindMonarchd(wanted));
  MONARCH_ASSIGN_OR_RETURN(auto pair, PacketSocket::Pair());
  MONARCH_ASSIGN_OR_RETURN(ScopedFd stderr_file, MakeStderrFile());
  // Out of the way of the numbers that the child's files get: a dup2 there would close one of these first.
  ScopedFd low = pair.second.ReleaseFd();
  const ScopedFd theirs(fcntl(low.get(), F_DUPFD_CLOEXEC, kChildFd + 1));
  const ScopedFd log(fcntl(stderr_file.get(), F_DUPFD_CLOEXEC, kChildFd + 1));
  if (!theirs.valid() || !log.valid()) return ErrnoStatus("duplicate fd", errno);
  low.reset();
  SpawnSettings settings;
  MONARCH_RETURN_IF_ERROR(settings.Fill(theirs.get(), log.get()));
  std::string args[] = {path, "--private", "--client-fd", std::to_string(kChildFd)};
  char* argv[] = {args[0].data(), args[1].data(), args[2].data(), args[3].data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, path.c_str(), settings.files(), settings.attributes(), argv, environ);
  if (error != 0) return ErrnoStatus(absl::StrCat("start ", path), error);
  return PrivateDaemon{std::move(pair.first), {pid}, std::move(stderr_file)};
}

void KillPrivate(const ClientProcess& process) {
  kill(static_cast<pid_t>(process.pid), SIGKILL);
  while (waitpid(static_cast<pid_t>(process.pid), nullptr, 0) < 0 && errno == EINTR) continue;
}

// Where the job's limits hold for its processes: workers of the system's daemon would leave them.
bool InBatchJob() {
  return !Environment("SLURM_STEP_ID").empty() || !Environment("KUBERNETES_SERVICE_HOST").empty();
}

// "": a private daemon; else the path of a native socket.
absl::StatusOr<std::string> SocketPath(const ClientOptions& options) {
  std::string address = options.address;
  if (address.empty()) address = Environment("MONARCH_ADDRESS");
  if (address == "private") return std::string();
  if (address.rfind(kUnixPrefix, 0) == 0 && address.size() > std::strlen(kUnixPrefix)) {
    return absl::StrCat(address.substr(std::strlen(kUnixPrefix)), "/native.sock");
  }
  if (!address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("address ", address, ": neither \"private\" nor \"unix:DIR\""));
  }
  if (InBatchJob() || access(kSystemSocket, F_OK) != 0) return std::string();
  return std::string(kSystemSocket);
}

absl::Status WithContext(const absl::Status& status, const std::string& context) {
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::StartClient(const ClientOptions& options) {
  Limits limits = options.limits;
  MONARCH_RETURN_IF_ERROR(SetLimitsFromEnvironment(environ, &limits));
  MONARCH_RETURN_IF_ERROR(limits.Validate());
  MONARCH_ASSIGN_OR_RETURN(const std::string path, SocketPath(options));
  Hello hello;
  hello.name = options.name.empty() ? OwnPath() : options.name;
  hello.stdout_fd = options.stdout_fd;
  hello.stderr_fd = options.stderr_fd;
  hello.output_stream_fd = options.output_stream_fd;
  if (!path.empty()) {
    auto socket = PacketSocket::Connect(path);
    if (!socket.ok()) return absl::UnavailableError(absl::StrCat("no monarchd: ", socket.status().message()));
    auto runtime = StartClientOn(*std::move(socket), {}, hello, kHelloTimeout, limits);
    if (!runtime.ok()) return WithContext(runtime.status(), path);
    return runtime;
  }
  MONARCH_ASSIGN_OR_RETURN(PrivateDaemon daemon, SpawnPrivate(options.monarchd_path));
  auto runtime = StartClientOn(std::move(daemon.socket), daemon.process, hello, kHelloTimeout, limits);
  if (runtime.ok()) return runtime;
  KillPrivate(daemon.process);
  const absl::Status status = WithContext(runtime.status(), "private monarchd");
  const std::string said = ReadStderrFile(daemon.stderr_file.get());
  if (said.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; it said: ", said));
}

}  // namespace monarch
