#include "daemon/launcher/line_tail.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

TEST_CASE("KeepsTheLastLines") {
  LineTail tail({2, 100});
  CHECK(tail.Text() == "");
  tail.Add("a\nb\nc");
  CHECK(tail.Text() == "b\nc");
  tail.Add("c\n");
  CHECK(tail.Text() == "b\ncc");
  tail.Add("d");
  CHECK(tail.Text() == "cc\nd");
}

TEST_CASE("CutsLongLines") {
  LineTail tail({3, 4});
  tail.Add("abcdef");
  tail.Add("ghi\nnext\n");
  CHECK(tail.Text() == "abcd\nnext");
}

TEST_CASE("GivesUtf8ForAnyBytes") {
  LineTail tail({3, 100});
  tail.Add("x\xff\n");
  CHECK(tail.Text() == "x\xEF\xBF\xBD");
}

TEST_CASE("KeepsEmptyLines") {
  LineTail tail({5, 100});
  tail.Add("a\n\nb\n");
  CHECK(tail.Text() == "a\n\nb");
}

}  // namespace
}  // namespace monarch
