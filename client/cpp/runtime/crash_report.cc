#include "client/cpp/runtime/crash_report.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/crash_report.h"
#include "client/cpp/runtime/crash_line.h"

namespace monarch {
namespace {

// A name in a large library without an index costs milliseconds.
constexpr absl::Duration kNamesTimeMax = absl::Milliseconds(300);
constexpr size_t kNameBytesMax = 512;

// The file that `pc` lies in. Threading: confined to one thread.
struct Module {
  uint64_t pc = 0;
  const char* file = nullptr;
  uint64_t base = 0;
};

int FindModule(dl_phdr_info* info, size_t, void* out) {
  auto* const module = static_cast<Module*>(out);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uint64_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || module->pc < begin || module->pc >= begin + segment.p_memsz) continue;
    module->file = info->dlpi_name;
    module->base = info->dlpi_addr;
    return 1;
  }
  return 0;
}

const char* SignalName(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return "signal";
  }
}

void AddReason(int signal, const siginfo_t& info, CrashLine* line) {
  if (info.si_code <= 0) {
    if (info.si_pid == getpid()) {
      line->Add("raised by the process itself");
    } else {
      line->Add("sent by process ").AddDecimal(info.si_pid);
    }
  } else if (signal == SIGFPE) {
    line->Add(info.si_code == FPE_INTDIV ? "integer divided by zero" : "arithmetic error");
  } else if (signal == SIGILL) {
    line->Add("illegal instruction at ").AddHex(reinterpret_cast<uint64_t>(info.si_addr));
  } else if (info.si_code == SI_KERNEL) {
    line->Add("access to an address that cannot be");
  } else {
    line->Add("access to address ").AddHex(reinterpret_cast<uint64_t>(info.si_addr));
    if (signal == SIGSEGV)
      line->Add(info.si_code == SEGV_ACCERR ? ", which is protected" : ", which is not mapped");
    if (signal == SIGBUS) line->Add(", which has no memory behind it or is not aligned");
  }
}

void WriteHead(int fd, int signal, const siginfo_t& info) {
  CrashLine line;
  // The program may have been in the middle of a line.
  line.Add("\n").Add(kCrashLinePrefix).Add(SignalName(signal)).Add(": ");
  AddReason(signal, info, &line);
  char name[16] = "";
  prctl(PR_GET_NAME, name, 0, 0, 0);
  line.Add(", in thread ").AddDecimal(syscall(SYS_gettid)).Add(" \"").Add(name).Add("\"").Write(fd);
}

void WriteFrame(int fd, int number, uint64_t pc, unw_cursor_t* cursor, bool with_name) {
  CrashLine line;
  line.Add(kCrashLinePrefix).Add("#").AddDecimal(number).Add(" ").AddHex(pc);
  char name[kNameBytesMax];
  unw_word_t offset = 0;
  if (with_name && unw_get_proc_name(cursor, name, sizeof(name), &offset) == 0) {
    line.Add(" in ").Add(name).Add("+").AddHex(offset);
  }
  Module module;
  module.pc = pc;
  if (dl_iterate_phdr(FindModule, &module) != 0) {
    line.Add(" (")
        .Add(*module.file == '\0' ? "program" : module.file)
        .Add("+")
        .AddHex(pc - module.base)
        .Add(")");
  }
  line.Write(fd);
}

}  // namespace

void PrepareCrashReport() {
  // Without a cache it takes no lock.
  unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE);
}

void WriteCrashReport(int fd, int signal, const siginfo_t& info, void* context, CrashProgress* progress) {
  const bool is_first = ++progress->calls == 1;
  if (!progress->head) WriteHead(fd, signal, info);
  progress->head = true;
  const SystemClock clock;
  const absl::Duration names_until = clock.Now() + kNamesTimeMax;
  unw_cursor_t cursor;
  if (unw_init_local2(&cursor, static_cast<unw_context_t*>(context), UNW_INIT_SIGNAL_FRAME) != 0) return;
  for (int number = 0; number < kCrashFramesMax; ++number) {
    unw_word_t pc = 0;
    if (unw_get_reg(&cursor, UNW_REG_IP, &pc) != 0) return;
    if (number >= progress->frames)
      WriteFrame(fd, number, pc, &cursor, is_first && clock.Now() < names_until);
    progress->frames = std::max(progress->frames, number + 1);
    if (unw_step(&cursor) <= 0) return;
  }
  CrashLine().Add(kCrashLinePrefix).Add("(more frames, not shown)").Write(fd);
}

}  // namespace monarch
