#include "daemon/launcher/exit_status.h"

#include <catch2/catch.hpp>
#include <csignal>

namespace monarch {
namespace {

TEST_CASE("ReadsTheWordOfWait") {
  CHECK(ExitStatus::FromWaitStatus(7 << 8) == ExitStatus{7, 0, false});
  CHECK(ExitStatus::FromWaitStatus(9) == ExitStatus{0, 9, false});
  CHECK(ExitStatus::FromWaitStatus(6 | 0x80) == ExitStatus{0, 6, true});
  CHECK_FALSE(ExitStatus::FromWaitStatus(0).known());
}

TEST_CASE("WritesTheWordOfWait") {
  for (const int word : {0, 7 << 8, 255 << 8, 9, 6 | 0x80}) {
    CHECK(ExitStatus::FromWaitStatus(word).ToWaitStatus() == word);
  }
}

TEST_CASE("ReadsSiginfo") {
  CHECK(ExitStatus::FromSiginfo(CLD_EXITED, 3) == ExitStatus{3, 0, false});
  CHECK(ExitStatus::FromSiginfo(CLD_KILLED, 15) == ExitStatus{0, 15, false});
  CHECK(ExitStatus::FromSiginfo(CLD_DUMPED, 11) == ExitStatus{0, 11, true});
}

TEST_CASE("ShowsAnExitStatusOrASignal") {
  CHECK(ExitStatus{3, 0, false}.ToString() == "exit status 3");
  CHECK(ExitStatus{0, 9, false}.ToString() == "signal 9");
}

}  // namespace
}  // namespace monarch
