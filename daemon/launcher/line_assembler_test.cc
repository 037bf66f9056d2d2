#include "daemon/launcher/line_assembler.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

TEST_CASE("HoldsAnUnfinishedLine") {
  LineAssembler lines(100);
  CHECK(lines.Add("one\ntw") == "one\n");
  CHECK_FALSE(lines.empty());
  CHECK(lines.Add("o") == "");
  CHECK(lines.Add("\n") == "two\n");
  CHECK(lines.empty());
}

TEST_CASE("PassesProgressBarsOn") {
  LineAssembler lines(100);
  CHECK(lines.Add("10%\r20%") == "10%\r");
  CHECK(lines.Flush() == "20%");
  CHECK(lines.Flush() == "");
}

TEST_CASE("PassesAnEndlessLineOnInPieces") {
  LineAssembler lines(4);
  CHECK(lines.Add("abcd") == "");
  CHECK(lines.Add("e") == "abcde");
  CHECK(lines.Add("x\nabcdefg") == "x\nabcdefg");
  CHECK(lines.empty());
}

}  // namespace
}  // namespace monarch
