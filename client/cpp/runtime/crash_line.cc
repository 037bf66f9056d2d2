#include "client/cpp/runtime/crash_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace monarch {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

// The digits of `number`, at the end of `buffer`.
template <size_t size>
std::string_view Digits(uint64_t number, unsigned base, char (&buffer)[size]) {
  size_t at = size;
  do {
    buffer[--at] = kDigits[number % base];
    number /= base;
  } while (number != 0);
  return {buffer + at, size - at};
}

}  // namespace

CrashLine& CrashLine::Add(std::string_view text) {
  const size_t size = std::min(text.size(), kBytesMax - size_);
  std::memcpy(text_ + size_, text.data(), size);
  size_ += size;
  return *this;
}

CrashLine& CrashLine::AddDecimal(int64_t number) {
  char buffer[20];
  if (number < 0) Add("-");
  const auto bits = static_cast<uint64_t>(number);
  return Add(Digits(number < 0 ? 0 - bits : bits, 10, buffer));
}

CrashLine& CrashLine::AddHex(uint64_t number) {
  char buffer[16];
  return Add("0x").Add(Digits(number, 16, buffer));
}

void CrashLine::Write(int fd) {
  text_[size_] = '\n';
  [[maybe_unused]] const ssize_t written = write(fd, text_, size_ + 1);
}

}  // namespace monarch
