#include "base/ids.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace monarch {
namespace {

constexpr size_t kHexDigits = 32;

// -1 for anything but a lower-case hex digit: one id has exactly one spelling.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void FillRandom(void* data, size_t size) {
  for (;;) {
    const ssize_t got = getrandom(data, size, 0);
    if (got == static_cast<ssize_t>(size)) return;
    // Up to 256 bytes come whole once the kernel's pool is ready, which only a signal can keep us from
    // awaiting.
    MONARCH_CHECK(got < 0 && errno == EINTR);
  }
}

}  // namespace

Id128 Id128::Random() {
  Id128 id;
  while (id.is_zero()) {
    uint64_t words[2];
    FillRandom(words, sizeof(words));
    id.high = words[0];
    id.low = words[1];
  }
  return id;
}

absl::StatusOr<Id128> Id128::FromHex(std::string_view hex) {
  // The text itself stays out of the message: it may be a secret token, or anything at all.
  if (hex.size() != kHexDigits) {
    return absl::InvalidArgumentError(
        absl::StrCat("parse id: ", hex.size(), " characters, expected ", kHexDigits, " hex digits"));
  }
  uint64_t words[2] = {0, 0};
  for (size_t i = 0; i < kHexDigits; ++i) {
    const int digit = DigitOf(hex[i]);
    if (digit < 0) {
      return absl::InvalidArgumentError(absl::StrCat("parse id: no lower-case hex digit at position ", i));
    }
    uint64_t& word = words[i / 16];
    word = word << 4 | static_cast<uint64_t>(digit);
  }
  return Id128{words[0], words[1]};
}

std::string Id128::ToHex() const { return absl::StrFormat("%016x%016x", high, low); }

std::string ProcAddress::ToString() const {
  return absl::StrCat("proc ", proc, ".", incarnation, "@", host.ToHex().substr(0, 8));
}

std::string ActorAddress::ToString() const { return absl::StrCat("actor ", actor, " of ", proc.ToString()); }

}  // namespace monarch
