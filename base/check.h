#pragma once

namespace monarch {

// Prints file, line and the failed condition to stderr and aborts. For bugs only; the world's faults are a
// Status.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace monarch

#define MONARCH_CHECK(condition)                                              \
  do {                                                                        \
    if (!(condition)) ::monarch::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
