#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace monarch {

// Cuts one worker's byte stream at line ends, so that lines of several workers do not tear each other. A
// carriage return counts as a line end: progress bars show at once. A line longer than the limit is passed on
// in pieces. Threading: confined to the launcher's loop.
class LineAssembler {
 public:
  explicit LineAssembler(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

  // The complete lines so far, this one's bytes included; may be empty.
  std::string Add(std::string_view bytes);
  // What is held back, without an end of line.
  std::string Flush();
  bool empty() const { return held_.empty(); }

 private:
  const size_t line_bytes_max_;
  std::string held_;
};

}  // namespace monarch
