#include "client/cpp/ctl/frozen_process.h"

#include <cxxabi.h>
#include <dirent.h>
#include <libunwind-ptrace.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch::ctl {
namespace {

constexpr int kFramesMax = 128;
constexpr size_t kNameBytesMax = 512;

std::vector<pid_t> Threads(pid_t pid) {
  std::vector<pid_t> tids;
  DIR* directory = opendir(absl::StrCat("/proc/", pid, "/task").c_str());
  if (directory == nullptr) return tids;
  while (const dirent* entry = readdir(directory)) {
    pid_t tid = 0;
    if (absl::SimpleAtoi(entry->d_name, &tid)) tids.push_back(tid);
  }
  closedir(directory);
  std::sort(tids.begin(), tids.end());
  return tids;
}

// What of a process is mapped from which file.
struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  std::string file;
};

std::vector<Mapping> ReadMappings(pid_t pid) {
  std::vector<Mapping> mappings;
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    unsigned long begin = 0, end = 0, offset = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx", &begin, &end, &offset) != 3) continue;
    const size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    mappings.push_back({begin, end, offset, line.substr(slash + 1)});
  }
  return mappings;
}

const Mapping* MappingOf(const std::vector<Mapping>& mappings, uint64_t address) {
  for (const Mapping& mapping : mappings) {
    if (mapping.begin <= address && address < mapping.end) return &mapping;
  }
  return nullptr;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

std::string FrameText(unw_cursor_t* cursor, uint64_t address, const std::vector<Mapping>& mappings) {
  const Mapping* mapping = MappingOf(mappings, address);
  const std::string file = mapping == nullptr ? "" : absl::StrCat(" (", mapping->file, ")");
  char name[kNameBytesMax];
  unw_word_t offset = 0;
  const int named = unw_get_proc_name(cursor, name, sizeof name, &offset);
  // In a file without its symbols the nearest exported one is found, which need not be this function's.
  unw_proc_info_t info;
  const bool is_its = unw_get_proc_info(cursor, &info) == 0 && info.start_ip == address - offset;
  if (is_its && (named == 0 || named == -UNW_ENOMEM)) return absl::StrCat(Demangled(name), file);
  if (mapping == nullptr) return absl::StrFormat("0x%x", address);
  return absl::StrFormat("0x%x%s", address - mapping->begin + mapping->offset, file);
}

std::vector<std::string> Unwind(pid_t tid, unw_addr_space_t space, const std::vector<Mapping>& mappings) {
  std::vector<std::string> frames;
  void* const thread = _UPT_create(tid);
  unw_cursor_t cursor;
  int more = thread == nullptr ? -1 : unw_init_remote(&cursor, space, thread) == 0 ? 1 : -1;
  while (more > 0 && frames.size() < kFramesMax) {
    unw_word_t address = 0;
    if (unw_get_reg(&cursor, UNW_REG_IP, &address) != 0 || address == 0) break;
    frames.push_back(FrameText(&cursor, address, mappings));
    more = unw_step(&cursor);
  }
  if (thread != nullptr) _UPT_destroy(thread);
  return frames;
}

std::string ThreadName(pid_t pid, pid_t tid) {
  std::ifstream comm(absl::StrCat("/proc/", pid, "/task/", tid, "/comm"));
  std::string name;
  std::getline(comm, name);
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrozenProcess>> FrozenProcess::Freeze(pid_t pid, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  std::unique_ptr<FrozenProcess> frozen(new FrozenProcess(pid));
  // A thread that still runs may start others.
  for (bool any = true; any;) {
    MONARCH_RETURN_IF_ERROR(frozen->SeizeNewThreads(&any));
    frozen->AwaitStops(deadline);
  }
  if (frozen->threads_.empty()) return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  return frozen;
}

absl::Status FrozenProcess::SeizeNewThreads(bool* any) {
  *any = false;
  for (const pid_t tid : Threads(pid_)) {
    const auto is_it = [tid](const Thread& thread) { return thread.tid == tid; };
    if (std::any_of(threads_.begin(), threads_.end(), is_it)) continue;
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
      if (errno == ESRCH) continue;  // It has ended.
      if (errno != EPERM) return ErrnoStatus("trace the process", errno);
      return absl::PermissionDeniedError(
          absl::StrCat("process ", pid_,
                       " may not be traced: it is another user's, is being traced, or "
                       "kernel.yama.ptrace_scope forbids it; try as root"));
    }
    ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    threads_.push_back({.tid = tid});
    *any = true;
  }
  return absl::OkStatus();
}

void FrozenProcess::AwaitStops(absl::Duration deadline) {
  const SystemClock clock;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (Thread& thread : threads_) {
    while (!thread.stopped) {
      int status = 0;
      const pid_t done = waitpid(thread.tid, &status, __WALL | WNOHANG);
      if (done < 0 || (done > 0 && !WIFSTOPPED(status))) break;  // It has ended.
      if (done > 0) {
        thread.stopped = true;
        // Else it was about to get a signal, which detaching gives it.
        if (status >> 16 != PTRACE_EVENT_STOP) thread.signal = WSTOPSIG(status);
        continue;
      }
      const absl::Duration left = deadline - clock.Now();
      if (left <= absl::ZeroDuration()) break;
      const timespec wait = absl::ToTimespec(left);
      sigtimedwait(&child, nullptr, &wait);
    }
  }
}

FrozenProcess::~FrozenProcess() {
  for (const Thread& thread : threads_) {
    if (thread.stopped) ptrace(PTRACE_DETACH, thread.tid, nullptr, thread.signal);
  }
}

std::vector<NativeThread> FrozenProcess::Stacks() const {
  const std::vector<Mapping> mappings = ReadMappings(pid_);
  const unw_addr_space_t space = unw_create_addr_space(&_UPT_accessors, 0);
  std::vector<NativeThread> stacks;
  for (const Thread& thread : threads_) {
    NativeThread stack{.tid = thread.tid, .name = ThreadName(pid_, thread.tid), .frames = {}};
    if (thread.stopped) stack.frames = Unwind(thread.tid, space, mappings);
    stacks.push_back(std::move(stack));
  }
  unw_destroy_addr_space(space);
  return stacks;
}

}  // namespace monarch::ctl
