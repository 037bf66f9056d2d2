#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace monarch {

// key=value lines: "2026-01-02T03:04:05.678Z I daemon: session started session=12ab uid=1000". A lower-case
// message that states a fact, then the ids. One line per change of state, none per transfer. Values with
// spaces, quotes or line ends are quoted and escaped. Threading: thread-safe; a line is one write(2).
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Where lines go (default: fd 2) and from which level on (default: kInfo).
void SetLogFd(int fd);
void SetLogLevel(LogLevel level);

// One line, written when it is destroyed. Longer than 4 KiB it is cut, so that a pipe takes it in one piece.
// Threading: confined to the thread that made it.
class LogLine {
 public:
  LogLine(LogLevel level, std::string_view component, std::string_view message);
  ~LogLine();
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;

  template <typename T>
  LogLine& With(std::string_view key, const T& value) {
    if (!enabled_) return *this;
    // The system's Abseil has a string view of its own and takes no std::string_view.
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      Append(key, value);
    } else {
      Append(key, absl::StrCat(value));
    }
    return *this;
  }

 private:
  void Append(std::string_view key, std::string_view value);
  bool enabled_;
  std::string line_;
};

inline LogLine LogDebug(std::string_view c, std::string_view m) { return LogLine(LogLevel::kDebug, c, m); }
inline LogLine LogInfo(std::string_view c, std::string_view m) { return LogLine(LogLevel::kInfo, c, m); }
inline LogLine LogWarning(std::string_view c, std::string_view m) {
  return LogLine(LogLevel::kWarning, c, m);
}
inline LogLine LogError(std::string_view c, std::string_view m) { return LogLine(LogLevel::kError, c, m); }

}  // namespace monarch
