#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/launcher/line_tail.h"

namespace monarch {

// What a worker wrote to stderr last, as far as a message can carry it: the last lines, and apart from them
// the report of its crash (base/crash_report.h), so that neither pushes the other out. Threading: confined to
// the launcher's loop.
class LastWords {
 public:
  // Pieces of any size; the report's lines begin with their prefix in one piece.
  void Add(std::string_view bytes);
  // The last 50 lines, without the report's.
  std::string Stderr() const { return tail_.Text(); }
  // Its lines without their prefix, C++ names readable; empty if there was no crash.
  std::string Backtrace() const;

 private:
  void AddToReport(std::string_view piece);

  LineTail tail_{LineTail::Options{}};
  std::vector<std::string> report_;
  bool line_open_ = false;
  bool line_is_report_ = false;
  bool line_is_left_out_ = false;  // the report is full
};

}  // namespace monarch
