#include <signal.h>

#include <cstdio>

#include "daemon/daemon.h"
#include "daemon/options.h"

int main(int argc, char** argv) {
  monarch::DaemonOptions options;
  const auto parsed = monarch::DaemonOptions::Parse(argc, argv, &options);
  if (parsed.exit_code) return *parsed.exit_code;
  // Before the first thread: signals are read by the loop, and no library's thread runs a handler. Those that
  // ask for a core still end it, also when somebody sends them.
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  auto daemon = monarch::Daemon::Create(options);
  if (!daemon.ok()) {
    std::fprintf(stderr, "monarchd: %s\n", std::string(daemon.status().message()).c_str());
    return 1;
  }
  (*daemon)->Run();
  return 0;
}
