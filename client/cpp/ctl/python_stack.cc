#include "client/cpp/ctl/python_stack.h"

#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"
#include "base/status_macros.h"

namespace monarch::ctl {
namespace {

constexpr size_t kOutputBytesMax = 16 << 20;

const google::protobuf::Value& Field(const google::protobuf::Struct& record, const char* name) {
  const auto found = record.fields().find(name);
  return found == record.fields().end() ? google::protobuf::Value::default_instance() : found->second;
}

// All that comes until the pipe is closed.
absl::StatusOr<std::string> ReadAll(int fd, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  std::string text;
  char piece[65536];
  while (true) {
    const absl::Duration left = std::max(deadline - clock.Now(), absl::ZeroDuration());
    pollfd wait{fd, POLLIN, 0};
    const int ready =
        poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return absl::DeadlineExceededError("py-spy takes too long");
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0) return ErrnoStatus("read from py-spy", errno);
    if (got == 0) return text;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > kOutputBytesMax) return absl::ResourceExhaustedError("py-spy says too much");
  }
}

std::string FirstLine(int file) {
  char text[512];
  const ssize_t got = pread(file, text, sizeof text, 0);
  const std::string line(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return line.substr(0, line.find('\n'));
}

// What it prints.
absl::StatusOr<std::string> RunPySpy(pid_t pid, absl::Duration timeout) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus("make a pipe", errno);
  const ScopedFd from(fds[0]);
  ScopedFd to(fds[1]);
  const ScopedFd errors(memfd_create("errors", MFD_CLOEXEC));
  if (!errors.valid()) return ErrnoStatus("make a memfd", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.get(), STDERR_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::string arguments[] = {"py-spy", "dump", "--json", "--nonblocking", "--pid", absl::StrCat(pid)};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "py-spy", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return absl::NotFoundError("py-spy is not on PATH; pip install py-spy");
  if (error != 0) return ErrnoStatus("run py-spy", error);
  to.reset();
  absl::StatusOr<std::string> output = ReadAll(from.get(), timeout);
  if (!output.ok()) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  MONARCH_RETURN_IF_ERROR(output.status());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return absl::InternalError(absl::StrCat("py-spy cannot read it: ", FirstLine(errors.get())));
  return output;
}

PythonThread ThreadOf(const google::protobuf::Struct& record) {
  PythonThread thread;
  thread.tid = static_cast<pid_t>(Field(record, "os_thread_id").number_value());
  thread.name = Field(record, "thread_name").string_value();
  thread.holds_interpreter = Field(record, "owns_gil").bool_value();
  for (const google::protobuf::Value& value : Field(record, "frames").list_value().values()) {
    const google::protobuf::Struct& frame = value.struct_value();
    const std::string& file = Field(frame, "filename").string_value();
    thread.frames.push_back(absl::StrCat(Field(frame, "name").string_value(), " (", file, ":",
                                         static_cast<int64_t>(Field(frame, "line").number_value()), ")"));
  }
  return thread;
}

}  // namespace

bool IsPython(pid_t pid) {
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string file = line.substr(slash + 1);
    if (absl::StartsWith(file, "libpython3") || absl::StartsWith(file, "python3")) return true;
  }
  return false;
}

absl::StatusOr<std::vector<PythonThread>> PythonStacks(pid_t pid, absl::Duration timeout) {
  MONARCH_ASSIGN_OR_RETURN(const std::string output, RunPySpy(pid, timeout));
  return ParsePySpy(output);
}

absl::StatusOr<std::vector<PythonThread>> ParsePySpy(const std::string& json) {
  google::protobuf::ListValue list;
  if (!google::protobuf::util::JsonStringToMessage(json, &list).ok())
    return absl::InvalidArgumentError("py-spy's output is not JSON");
  std::vector<PythonThread> threads;
  for (const google::protobuf::Value& value : list.values())
    threads.push_back(ThreadOf(value.struct_value()));
  return threads;
}

}  // namespace monarch::ctl
