#include "client/cpp/runtime/crash_handler.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <ctime>

#include "base/errno_status.h"
#include "client/cpp/runtime/crash_report.h"
#include "message/lifeline.h"

namespace monarch {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
constexpr size_t kStackBytes = 64 << 10;
// A crash with malloc's lock held would wait for that in the report. The daemon ends a crash after 2 s.
constexpr itimerspec kStepMax = {{0, 0}, {0, 600'000'000}};
// Another thread that crashes meanwhile lets the first one finish.
constexpr timespec kLook = {0, 10'000'000};
constexpr int kLooksMax = 100;
// The daemon ends a crash that takes longer.
constexpr int kAwaitLooksMax = 300;

// What the handler needs. Constant once the handler is there, but for the atomics and, from `escape` on, what
// is the reporter's.
struct {
  pid_t pid = 0;
  uint8_t* life_line = nullptr;
  struct sigaction previous[NSIG];
  std::atomic<pid_t> reporter{0};
  std::atomic<bool> done{false};
  sigjmp_buf escape;
  CrashProgress progress;
  bool complete = false;  // the report
  int timer = -1;
} g_crash;

pid_t ThreadId() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// `step` as far as it gets: a crash in it comes back here.
template <typename Step>
void Guarded(Step step) {
  if (sigsetjmp(g_crash.escape, 1) == 0) step();
}

// As Guarded, and what hangs comes back, too: by a signal to this thread, as if of a crash.
template <typename Step>
void GuardedInTime(Step step) {
  Guarded([&] {
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGABRT;
    event._sigev_un._tid = ThreadId();
    // The raw calls: those of the library allocate.
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &g_crash.timer) != 0) return step();
    syscall(SYS_timer_settime, g_crash.timer, 0, &kStepMax, nullptr);
    step();
  });
  // Its signal may come until then.
  Guarded([] { syscall(SYS_timer_delete, g_crash.timer); });
}

void Report(int signal, const siginfo_t& info, void* context) {
  const pid_t self = ThreadId();
  pid_t nobody = 0;
  if (g_crash.reporter.compare_exchange_strong(nobody, self)) {
    if (g_crash.life_line != nullptr) Guarded([&] { AbandonLifeline(g_crash.life_line, signal); });
    // Again: without names, if those were too much.
    for (int i = 0; i < 2; ++i) {
      GuardedInTime([&] {
        if (g_crash.complete) return;
        WriteCrashReport(STDERR_FILENO, signal, info, context, &g_crash.progress);
        g_crash.complete = true;
      });
    }
    g_crash.done.store(true);
    return;
  }
  if (g_crash.done.load()) return;
  if (nobody == self) siglongjmp(g_crash.escape, 1);
  for (int i = 0; i < kLooksMax && !g_crash.done.load(); ++i) nanosleep(&kLook, nullptr);
}

void OnCrash(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (getpid() == g_crash.pid) Report(signal, *info, context);
  sigaction(signal, &g_crash.previous[signal], nullptr);
  errno = error;
  // A fault comes again when its instruction does; what was sent has to be sent again.
  if (info->si_code > 0 && signal != SIGABRT) return;
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), ThreadId(), signal, info) != 0) raise(signal);
}

// Threading: confined to its thread.
class CrashStack {
 public:
  CrashStack() {
    memory_ =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory_ == MAP_FAILED) return;
    // So that a handler that needs more does not write over what lies below.
    mprotect(memory_, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
    stack_t stack = {};
    stack.ss_sp = memory_;
    stack.ss_size = kStackBytes;
    sigaltstack(&stack, nullptr);
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : kSignals) sigaddset(&signals, signal);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
  ~CrashStack() {
    if (memory_ == MAP_FAILED) return;
    stack_t now = {};
    if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory_) {
      now.ss_flags = SS_DISABLE;
      sigaltstack(&now, nullptr);
    }
    munmap(memory_, kStackBytes);
  }
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  void* memory_;
};

}  // namespace

void SetCrashLifeline(uint8_t* page) { g_crash.life_line = page; }

absl::Status InstallCrashHandler() {
  if (g_crash.pid != 0) return absl::FailedPreconditionError("the crash handler is there already");
  PrepareCrashReport();
  g_crash.pid = getpid();
  UseCrashStack();
  for (const int signal : kSignals) {
    struct sigaction action = {};
    action.sa_sigaction = OnCrash;
    sigemptyset(&action.sa_mask);
    // NODEFER: a crash in the report comes here, too.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    if (sigaction(signal, &action, &g_crash.previous[signal]) != 0)
      return ErrnoStatus("install the crash handler", errno);
  }
  return absl::OkStatus();
}

void AwaitCrash() {
  if (getpid() != g_crash.pid || g_crash.reporter.load() == 0) return;
  for (int i = 0; i < kAwaitLooksMax; ++i) nanosleep(&kLook, nullptr);
}

void UseCrashStack() {
  if (g_crash.pid == 0) return;
  thread_local CrashStack stack;
}

}  // namespace monarch
