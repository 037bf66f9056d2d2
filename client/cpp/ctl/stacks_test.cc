#include "client/cpp/ctl/stacks.h"

#include <google/protobuf/text_format.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/scoped_fd.h"
#include "client/cpp/ctl/format_stack.h"

namespace monarch::ctl {
namespace {

// Where the process below is from the moment in which it says so.
extern "C" [[gnu::noinline]] void MonarchTestIdles(int fd) {
  (void)!write(fd, "x", 1);
  while (true) pause();
}

// A process with nothing to do.
class Idle {
 public:
  Idle() {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, nullptr);
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    ScopedFd from(fds[0]);
    ScopedFd to(fds[1]);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      signal(SIGTERM, SIG_DFL);  // Catch2 reports it.
      MonarchTestIdles(to.get());
    }
    char byte = 0;
    REQUIRE(read(from.get(), &byte, 1) == 1);
  }
  ~Idle() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  char state() const {
    std::ifstream stat(absl::StrCat("/proc/", pid_, "/stat"));
    std::string line;
    std::getline(stat, line);
    return line[line.rfind(')') + 2];
  }

 private:
  pid_t pid_ = 0;
};

TEST_CASE("FrozenProcess.GivesTheStacksAndLetsItGoOn") {
  const Idle idle;
  {
    const auto frozen = FrozenProcess::Freeze(idle.pid(), absl::Seconds(20));
    REQUIRE(frozen.ok());
    const std::vector<NativeThread> stacks = (*frozen)->Stacks();
    REQUIRE(stacks.size() == 1);
    CHECK(stacks[0].tid == idle.pid());
    REQUIRE_FALSE(stacks[0].frames.empty());
    CHECK(absl::StrContains(absl::StrJoin(stacks[0].frames, "\n"), "MonarchTestIdles"));
    CHECK(idle.state() == 't');
  }
  // A signal that comes now is handled as ever.
  kill(idle.pid(), SIGTERM);
  int status = 0;
  REQUIRE(waitpid(idle.pid(), &status, 0) == idle.pid());
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("FrozenProcess.OneThatWasStoppedStaysSo") {
  const Idle idle;
  kill(idle.pid(), SIGSTOP);
  int status = 0;
  REQUIRE(waitpid(idle.pid(), &status, WUNTRACED) == idle.pid());
  {
    const auto frozen = FrozenProcess::Freeze(idle.pid(), absl::Seconds(20));
    REQUIRE(frozen.ok());
    CHECK(absl::StrContains(absl::StrJoin((*frozen)->Stacks()[0].frames, "\n"), "MonarchTestIdles"));
  }
  // It stops again on its own.
  while (idle.state() == 'R') sched_yield();
  CHECK(idle.state() == 'T');
  kill(idle.pid(), SIGCONT);
  REQUIRE(waitpid(idle.pid(), &status, WCONTINUED) == idle.pid());
  CHECK(WIFCONTINUED(status));
}

TEST_CASE("FrozenProcess.OneThatIsNotThereIsNotFound") {
  pid_t pid = 0;
  {
    const Idle idle;
    pid = idle.pid();
  }
  CHECK(absl::IsNotFound(FrozenProcess::Freeze(pid, absl::Seconds(20)).status()));
}

TEST_CASE("ReadStacks.WithoutTimeLeftTheProcessIsNotTouched") {
  const Idle idle;
  ProcessStacks process;
  process.pid = idle.pid();
  ReadStacks(&process, absl::ZeroDuration());
  CHECK(absl::IsDeadlineExceeded(process.native_answer));
  CHECK(process.native.empty());
  CHECK(idle.state() != 't');
}

TEST_CASE("ParsePySpy.TakesThreadsAndFrames") {
  const auto threads =
      ParsePySpy(R"([{"pid":7,"thread_id":140,"thread_name":"MainThread","os_thread_id":7,"active":true,
    "owns_gil":true,"frames":[{"name":"train","filename":"/a/train.py","short_filename":"train.py","line":42,
    "locals":null,"is_entry":true}]},{"thread_name":null,"os_thread_id":8,"owns_gil":false,"frames":[]}])");
  REQUIRE(threads.ok());
  REQUIRE(threads->size() == 2);
  CHECK(threads->at(0).tid == 7);
  CHECK(threads->at(0).name == "MainThread");
  CHECK(threads->at(0).holds_interpreter);
  CHECK(threads->at(0).frames == std::vector<std::string>{"train (/a/train.py:42)"});
  CHECK(threads->at(1).name.empty());
  for (const char* text : {"", "Error: no such process", "{}", "[1, {\"frames\": 3}]"}) {
    const auto none = ParsePySpy(text);
    if (none.ok()) {
      for (const PythonThread& thread : *none) CHECK(thread.frames.empty());
    }
  }
}

Snapshot Tree() {
  Snapshot snapshot;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    sessions {
      session: "0123456789abcdef0123456789abcdef" name: "train.py" client_pid: 4700
      client { host: "h" proc: 1 incarnation: 1 }
      procs { address { host: "h" proc: 2 incarnation: 1 } rank: 0 pid: 4720 mesh: "p0" }
      procs { address { host: "h" proc: 3 incarnation: 1 } rank: 1 pid: 4721 mesh: "p0" }
      procs { address { host: "i" proc: 2 incarnation: 1 } rank: 2 pid: 4720 mesh: "p0" }
      actors { address { proc { host: "h" proc: 3 incarnation: 1 } actor: 5 } mesh: "trainers" rank: 1 }
    }
    activities { actor { proc { host: "h" proc: 3 incarnation: 1 } actor: 5 } method: "train" age_ms: 12000 state: "waiting" }
  )",
                                                        &snapshot.tree));
  return snapshot;
}

std::vector<int64_t> Found(const std::string& target) {
  std::vector<int64_t> pids;
  for (const ProcessStacks& process : FindProcesses(target, {Tree()})) pids.push_back(process.pid);
  return pids;
}

TEST_CASE("FindProcesses.ByMeshMemberActorAndPid") {
  CHECK(Found("") == std::vector<int64_t>{4700, 4720, 4721});
  CHECK(Found("p0") == std::vector<int64_t>{4720, 4721});
  CHECK(Found("p0:1") == std::vector<int64_t>{4721});
  CHECK(Found("trainers") == std::vector<int64_t>{4721});
  CHECK(Found("trainers[1]") == std::vector<int64_t>{4721});
  CHECK(Found("trainers:0").empty());
  CHECK(Found("4700") == std::vector<int64_t>{4700});
  CHECK(FindProcesses("p0:1", {Tree()})[0].at_work ==
        std::vector<std::string>{"trainers:1 train 12s waiting"});
}

TEST_CASE("FormatStacks.HasPythonBeforeNativeAndSaysWhatIsMissing") {
  ProcessStacks process;
  process.what = "p0:1";
  process.pid = 4721;
  process.at_work = {"trainers:1 train 12s waiting"};
  process.native = {{4721, "python3", {"futex_wait (libc.so.6)"}}, {4722, "rpc", {}}};
  process.python = {{4721, "MainThread", true, {"train (train.py:42)"}}};
  CHECK(FormatStacks({process}) ==
        "p0:1 (pid 4721)\n"
        "  at work: trainers:1 train 12s waiting\n"
        "  thread 4721 MainThread, holds the interpreter\n"
        "    python\n"
        "      train (train.py:42)\n"
        "    native\n"
        "      futex_wait (libc.so.6)\n"
        "  thread 4722 rpc\n"
        "      it does not stop: a system call that cannot be interrupted\n");
  process.python_answer = absl::NotFoundError("py-spy is not on PATH");
  CHECK(absl::StrContains(FormatStacks({process}), "  not read: py-spy is not on PATH\n"));
  const std::string json = FormatStacksJson({process});
  CHECK(absl::StrContains(json, R"("error":"py-spy is not on PATH")"));
  CHECK(absl::StrContains(json, R"x("python":["train (train.py:42)"])x"));
}

}  // namespace
}  // namespace monarch::ctl
