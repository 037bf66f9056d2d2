#include "daemon/launcher/last_words.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

TEST_CASE("KeepsACrashReportApartFromWhatTheProgramWrote") {
  LastWords words;
  words.Add("loading\n*** monarch: SIGSEGV: address 0x0 is not mapped\n");
  words.Add("*** monarch: #0 0x1 in _ZN3foo3barEi+0x2 (a.so+0x3)\nFatal Python error: Seg");
  words.Add("mentation fault");
  CHECK(words.Stderr() == "loading\nFatal Python error: Segmentation fault");
  CHECK(words.Backtrace() == "SIGSEGV: address 0x0 is not mapped\n#0 0x1 in foo::bar(int)+0x2 (a.so+0x3)");
}

TEST_CASE("AReportsLineMayComeInPieces") {
  LastWords words;
  words.Add("*** monarch: SIGABRT");
  words.Add(": raised by the process itself\nafter\n");
  CHECK(words.Backtrace() == "SIGABRT: raised by the process itself");
  CHECK(words.Stderr() == "after");
}

TEST_CASE("ThePrefixInTheMiddleOfALineIsNone") {
  LastWords words;
  words.Add("text ");
  words.Add("*** monarch: no report\n");
  CHECK(words.Backtrace().empty());
  CHECK(words.Stderr() == "text *** monarch: no report");
}

TEST_CASE("LeavesNamesThatItCannotReadAsTheyAre") {
  LastWords words;
  const std::string lines[] = {"#0 0x1 in main+0x2 (a+0x3)", "#1 0x1 in _Zbroken!+0x2", "#2 0x1 in _Znoplus",
                               "#3 0x1 (a+0x3)",
                               absl::StrCat("#4 0x1 in _Z", std::string(600, '1'), "f+0x2")};
  for (const std::string& line : lines) words.Add(absl::StrCat("*** monarch: ", line, "\n"));
  std::string all;
  for (const std::string& line : lines) absl::StrAppend(&all, all.empty() ? "" : "\n", line);
  CHECK(words.Backtrace() == all);
}

TEST_CASE("ANameThatStandsForTooMuchStaysAsItIs") {
  // f(A<int, int>, A<A<int, int>, A<int, int>>, ...): twice as long with each argument.
  std::string name = "_Z1f1AIiiE";
  for (const char digit : std::string_view("0123456789ABCDEFGH"))
    absl::StrAppend(&name, "S_IS", std::string(1, digit), "_S", std::string(1, digit), "_E");
  const std::string line = absl::StrCat("#0 0x1 in ", name, "+0x2 (a.so+0x3)");
  LastWords words;
  words.Add(absl::StrCat("*** monarch: ", line, "\n"));
  // One of few references is readable, however.
  words.Add("*** monarch: #1 0x1 in _Z1fRKNSt3mapIiiEES2_S2_+0x2\n");
  CHECK(words.Backtrace() == absl::StrCat(line,
                                          "\n#1 0x1 in f(std::map<int, int> const&, std::map<int, int> "
                                          "const&, std::map<int, int> const&)+0x2"));
}

TEST_CASE("ALineThatTheReportHasNoRoomForIsLeftOutWhole") {
  LastWords words;
  for (int i = 0; i < 66; ++i) words.Add(absl::StrCat("*** monarch: ", i, "\n"));
  words.Add("*** monarch: begin");
  words.Add("end\n");
  const std::string text = words.Backtrace();
  CHECK(text.substr(text.size() - 3) == "\n65");
}

TEST_CASE("AReportWithoutEndIsCut") {
  LastWords words;
  const std::string line(5000, 'x');
  for (int i = 0; i < 1000; ++i) words.Add(absl::StrCat("*** monarch: ", i, " ", line, "\n"));
  words.Add("last\n");
  CHECK(words.Backtrace().substr(0, 3) == "0 x");
  CHECK(words.Backtrace().size() <= 16 << 10);
  CHECK(words.Stderr() == "last");
}

}  // namespace
}  // namespace monarch
