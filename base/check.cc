#include "base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace monarch {

void CheckFailed(const char* file, int line, const char* condition) {
  // A buffer on the stack and write(2): the heap may be what is broken.
  char text[512];
  const int length = std::snprintf(text, sizeof(text), "%s:%d: check failed: %s\n", file, line, condition);
  if (length > 0) {
    size_t bytes = static_cast<size_t>(length);
    if (bytes >= sizeof(text)) {
      bytes = sizeof(text) - 1;
      text[bytes - 1] = '\n';
    }
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, bytes);
  }
  std::abort();
}

}  // namespace monarch
