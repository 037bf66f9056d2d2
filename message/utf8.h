#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace monarch {

// Length of the well-formed UTF-8 character that `text` begins with (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF); 0 if it begins with none.
size_t Utf8CharacterLength(std::string_view text);

bool IsUtf8(std::string_view text);

// `text` with each byte that belongs to no character replaced by U+FFFD: for what comes from the world
// (stderr, argv, file names) and goes into a Value as text.
std::string ToUtf8(std::string_view text);

}  // namespace monarch
