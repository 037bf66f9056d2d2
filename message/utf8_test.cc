#include "message/utf8.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

TEST_CASE("Utf8AcceptsWellFormedText") {
  for (std::string_view text : {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xEE\x80\x80",
                                "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xC3\xA9z"}) {
    CHECK(IsUtf8(text));
    CHECK(ToUtf8(text) == text);
  }
}

TEST_CASE("Utf8RefusesWhatIsIllFormed") {
  const std::string_view cases[] = {
      "\x80",              // continuation alone
      "\xC3",              // truncated
      "\xE2\x82",          // truncated
      "\xC0\x80",          // overlong
      "\xC1\xBF",          // overlong
      "\xE0\x9F\xBF",      // overlong
      "\xF0\x8F\xBF\xBF",  // overlong
      "\xED\xA0\x80",      // surrogate
      "\xF4\x90\x80\x80",  // above U+10FFFF
      "\xF5\x80\x80\x80",
      "\xFF",
      "\xC3\x28",  // no continuation
  };
  for (std::string_view text : cases) {
    CHECK_FALSE(IsUtf8(text));
    CHECK(Utf8CharacterLength(text) == 0);
    CHECK(IsUtf8(ToUtf8(text)));
  }
}

TEST_CASE("Utf8RepairKeepsTheRest") {
  CHECK(ToUtf8("a\xFF"
               "b\xC3") ==
        "a\xEF\xBF\xBD"
        "b\xEF\xBF\xBD");
}

}  // namespace
}  // namespace monarch
