#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace monarch {

// One line of text, made in a buffer of its own; what does not fit is cut. Every method is async-signal-safe.
// Threading: confined to one thread.
class CrashLine {
 public:
  CrashLine& Add(std::string_view text);
  CrashLine& Add(const char* text) { return Add(std::string_view(text)); }
  CrashLine& AddDecimal(int64_t number);
  CrashLine& AddHex(uint64_t number);  // "0x1f"
  std::string_view text() const { return {text_, size_}; }
  // To `fd`, with a line end, in one write. Lost if there is no room.
  void Write(int fd);

 private:
  static constexpr size_t kBytesMax = 700;
  char text_[kBytesMax + 1];  // and the line end
  size_t size_ = 0;
};

}  // namespace monarch
