#include "client/cpp/runtime/crash_handler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/crash_report.h"
#include "client/cpp/runtime/crash_line.h"
#include "message/lifeline.h"

namespace monarch {
namespace {

struct Crash {
  int status = 0;     // of wait(2)
  std::string words;  // what was written to stderr
};

// Runs `body` in a child with the handler, and waits for its end.
template <typename Body>
Crash CrashOf(Body body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    alarm(60);
    // No core, and not the handlers of Catch2 or a sanitizer.
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    if (!InstallCrashHandler().ok()) _exit(99);
    body();
    _exit(98);
  }
  close(ends[1]);
  Crash crash;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(ends[0], buffer, sizeof(buffer));
    if (got <= 0) break;
    crash.words.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  REQUIRE(waitpid(pid, &crash.status, 0) == pid);
  return crash;
}

bool DiedOf(const Crash& crash, int signal) {
  return WIFSIGNALED(crash.status) && WTERMSIG(crash.status) == signal;
}

bool Says(const Crash& crash, const std::string& text) { return crash.words.find(text) != std::string::npos; }

// With a name of its own in the report.
extern "C" __attribute__((noinline)) void crash_handler_test_write(volatile int* address) { *address = 1; }

__attribute__((noinline)) int Deep(volatile char* above) {
  volatile char here[4096];
  here[0] = above == nullptr ? 0 : above[0];
  return here[0] != 0 ? 0 : Deep(here) + here[0];
}

// Not for the sanitizer to find first.
__attribute__((no_sanitize("undefined"))) void JumpToNowhere() {
  void (*volatile nowhere)() = nullptr;
  nowhere();
}

__attribute__((no_sanitize("undefined"))) void DivideByZero() {
  volatile int zero = 0;
  volatile int number = 7;
  volatile int quotient = number / zero;
  static_cast<void>(quotient);
}

TEST_CASE("AFaultIsReportedAndEndsTheProcessByItsSignal") {
  const Crash crash = CrashOf([] { crash_handler_test_write(reinterpret_cast<int*>(0x10)); });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGSEGV));
  CHECK(crash.words.find("\n*** monarch: SIGSEGV: access to address 0x10, which is not mapped, in thread ") ==
        0);
  CHECK(Says(crash, "*** monarch: #0 0x"));
  CHECK(Says(crash, " in crash_handler_test_write+0x"));
  CHECK(Says(crash, " in main+0x"));
}

TEST_CASE("AbortIsReported") {
  const Crash crash = CrashOf([] { abort(); });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGABRT));
  CHECK(crash.words.find("\n*** monarch: SIGABRT: raised by the process itself") == 0);
  CHECK(Says(crash, " in abort+0x"));
}

TEST_CASE("AnUncaughtExceptionIsReportedWithItsText") {
  const Crash crash = CrashOf([] { std::thread([] { throw std::runtime_error("out of luck"); }).join(); });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGABRT));
  CHECK(Says(crash, "out of luck"));
  CHECK(Says(crash, "*** monarch: #0 "));
}

TEST_CASE("ASignalFromOutsideNamesItsSender") {
  const Crash crash = CrashOf([] {
    const pid_t self = getpid();
    if (fork() == 0) {
      kill(self, SIGSEGV);
      _exit(0);
    }
    for (;;) pause();
  });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGSEGV));
  CHECK(crash.words.find("\n*** monarch: SIGSEGV: sent by process ") == 0);
}

TEST_CASE("AStackThatIsUsedUpIsReported") {
  const Crash main_thread = CrashOf([] { Deep(nullptr); });
  CHECK(DiedOf(main_thread, SIGSEGV));
  CHECK(Says(main_thread, "(more frames, not shown)"));
  const Crash other_thread = CrashOf([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::thread([] {
      UseCrashStack();
      Deep(nullptr);
    }).join();
  });
  CHECK(DiedOf(other_thread, SIGSEGV));
  CHECK(Says(other_thread, "(more frames, not shown)"));
}

TEST_CASE("AJumpToNowhereIsReported") {
  const Crash crash = CrashOf(JumpToNowhere);
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGSEGV));
  CHECK(Says(crash, "*** monarch: #0 0x0\n"));
}

TEST_CASE("OtherCausesAreNamed") {
  const Crash divided = CrashOf(DivideByZero);
  CHECK(DiedOf(divided, SIGFPE));
  CHECK(Says(divided, "SIGFPE: integer divided by zero"));
  const Crash illegal = CrashOf([] { __builtin_trap(); });
  CHECK(DiedOf(illegal, SIGILL));
  CHECK(Says(illegal, "SIGILL: illegal instruction at 0x"));
  const Crash unbacked = CrashOf([] {
    const int fd = memfd_create("empty", 0);
    crash_handler_test_write(
        static_cast<int*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)));
  });
  CHECK(DiedOf(unbacked, SIGBUS));
  CHECK(Says(unbacked, "which has no memory behind it"));
}

TEST_CASE("ACrashInTheReportEndsTheReportOnly") {
  // The life-line is a page that is not there: the handler itself faults.
  const Crash crash = CrashOf([] {
    SetCrashLifeline(reinterpret_cast<uint8_t*>(0x1000));
    abort();
  });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGABRT));
  CHECK(Says(crash, "*** monarch: SIGABRT"));
}

TEST_CASE("ACrashThatHoldsTheLockOfMallocIsReported") {
  // What malloc finds broken it reports with its lock held. Of a thread: one alone takes none.
  const Crash crash = CrashOf([] {
    std::thread other([] { pause(); });
    std::thread([] {
      UseCrashStack();
      for (size_t size = 5000; size < 600'000; size += 3000) {
        void* volatile memory = malloc(size);
        memset(memory, 0xff, size + 100);
      }
    }).join();
    _exit(97);
  });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGABRT));
  CHECK(Says(crash, "*** monarch: #0 0x"));
  CHECK(Says(crash, "*** monarch: #5 0x"));
}

TEST_CASE("WhoIsAboutToExitLetsACrashComeToItsEnd") {
  const Crash crash = CrashOf([] {
    AwaitCrash();  // There is none.
    alignas(4096) static uint8_t page[4096];
    SetCrashLifeline(page);
    std::thread crashing([] { abort(); });
    while (AbandonedBy(page) == 0) std::this_thread::yield();
    AwaitCrash();
    _exit(0);
  });
  INFO(crash.words);
  CHECK(DiedOf(crash, SIGABRT));
  CHECK(Says(crash, " in abort+0x"));
}

TEST_CASE("TheHandlerThatWasThereRunsAfterwards") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    signal(SIGSEGV, [](int) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, "former\n", 7);
      _exit(3);
    });
    if (InstallCrashHandler().ok()) crash_handler_test_write(nullptr);
    _exit(98);
  }
  close(ends[1]);
  std::string words;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) words.append(buffer, got);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  INFO(words);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 3));
  CHECK(words.rfind("*** monarch: ") < words.find("former\n"));
}

TEST_CASE("AForkedChildReportsNothing") {
  const Crash crash = CrashOf([] {
    const pid_t child = fork();
    if (child == 0) abort();
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 97);
  });
  CHECK((WIFEXITED(crash.status) && WEXITSTATUS(crash.status) == SIGABRT));
  CHECK(crash.words.empty());
}

TEST_CASE("ALineHoldsNumbersAndIsCut") {
  CrashLine line;
  line.Add("a ").AddDecimal(0).Add(" ").AddDecimal(INT64_MIN).Add(" ").AddHex(0).Add(" ").AddHex(UINT64_MAX);
  CHECK(line.text() == "a 0 -9223372036854775808 0x0 0xffffffffffffffff");
  line.Add(std::string(5000, 'x'));
  CHECK(line.text().size() == 700);
}

}  // namespace
}  // namespace monarch
