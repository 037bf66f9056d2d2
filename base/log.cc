#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace monarch {
namespace {

// What a pipe takes in one piece. A longer line loses its end, marked by "...".
constexpr size_t kLineBytesMax = PIPE_BUF;

// Process-wide, as fd 2 is.
std::atomic<int> log_fd{STDERR_FILENO};
std::atomic<LogLevel> log_level{LogLevel::kInfo};

char LetterOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 'D';
    case LogLevel::kInfo:
      return 'I';
    case LogLevel::kWarning:
      return 'W';
    case LogLevel::kError:
      return 'E';
  }
  return '?';
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (c == ' ' || c == '"' || c == '=' || c == '\\' || IsControl(c)) return true;
  }
  return false;
}

// Escapes what could end a line or a quoted value, or move a terminal's cursor.
void AppendEscaped(std::string_view text, bool in_quotes, std::string& out) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsControl(c)) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      if (in_quotes && (c == '"' || c == '\\')) out += '\\';
      out += c;
    }
  }
}

void WriteLine(std::string_view line) {
  const int saved_errno = errno;
  while (!line.empty()) {
    const ssize_t written = write(log_fd.load(), line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    // A log that cannot be written is no reason to fail, and there is nobody to tell.
    if (written <= 0) break;
    line.remove_prefix(static_cast<size_t>(written));
  }
  errno = saved_errno;
}

}  // namespace

void SetLogFd(int fd) { log_fd.store(fd); }

void SetLogLevel(LogLevel level) { log_level.store(level); }

LogLine::LogLine(LogLevel level, std::string_view component, std::string_view message)
    : enabled_(level >= log_level.load()) {
  if (!enabled_) return;
  line_ = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", WallTime(), absl::UTCTimeZone());
  line_ += {' ', LetterOf(level), ' '};
  AppendEscaped(component, false, line_);
  line_ += ": ";
  AppendEscaped(message, false, line_);
}

LogLine::~LogLine() {
  if (!enabled_) return;
  if (line_.size() >= kLineBytesMax) {
    line_.resize(kLineBytesMax - 4);
    line_ += "...";
  }
  line_ += '\n';
  WriteLine(line_);
}

void LogLine::Append(std::string_view key, std::string_view value) {
  line_ += ' ';
  line_ += key;
  line_ += '=';
  if (!NeedsQuotes(value)) {
    line_ += value;
    return;
  }
  line_ += '"';
  AppendEscaped(value, true, line_);
  line_ += '"';
}

}  // namespace monarch
