#include "daemon/launcher/output_buffer.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

TEST_CASE("GivesBackWhatWasAdded") {
  OutputBuffer buffer(100);
  CHECK(buffer.empty());
  buffer.Add("one\n");
  buffer.Add("two\n");
  CHECK(buffer.bytes() == 8);
  CHECK(buffer.Take(100) == "one\ntwo\n");
  CHECK(buffer.Take(100) == "");
  CHECK(buffer.empty());
}

TEST_CASE("CutsChunksAtLineEnds") {
  OutputBuffer buffer(100);
  buffer.Add("aaa\nbbb\n");
  buffer.Add("cc\n");
  CHECK(buffer.Take(6) == "aaa\n");
  CHECK(buffer.Take(6) == "bbb\n");
  CHECK(buffer.Take(6) == "cc\n");
}

TEST_CASE("CutsALineOnlyIfItAloneIsTooLong") {
  OutputBuffer buffer(100);
  buffer.Add("ab\n");
  buffer.Add("0123456789\n");
  CHECK(buffer.Take(8) == "ab\n");
  CHECK(buffer.Take(8) == "01234567");
  CHECK(buffer.Take(8) == "89\n");
}

TEST_CASE("DropsTheOldestAndSaysSo") {
  OutputBuffer buffer(8);
  buffer.Add("1111\n");
  buffer.Add("2222\n");
  buffer.Add("33\n");
  CHECK(buffer.dropped() == 5);
  CHECK(buffer.bytes() == 8);
  CHECK(buffer.Take(100) == "monarch: 5 bytes of output dropped: its reader is too slow\n");
  CHECK(buffer.Take(100) == "2222\n33\n");
  CHECK(buffer.empty());
}

TEST_CASE("BeginsANoticeOnALineOfItsOwn") {
  OutputBuffer buffer(8);
  buffer.Add("12345678");
  CHECK(buffer.Take(4) == "1234");
  buffer.Add("abcdefg\n");
  CHECK(buffer.dropped() == 4);
  CHECK(buffer.Take(100).substr(0, 9) == "\nmonarch:");
}

TEST_CASE("DropsWhatIsLongerThanTheLimit") {
  OutputBuffer buffer(4);
  buffer.Add("0123456789\n");
  CHECK(buffer.dropped() == 11);
  CHECK(buffer.bytes() == 0);
  CHECK_FALSE(buffer.empty());
  buffer.Clear();
  CHECK(buffer.empty());
}

}  // namespace
}  // namespace monarch
