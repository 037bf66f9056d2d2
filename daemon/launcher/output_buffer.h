#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace monarch {

// Output that waits for its reader: bounded, the oldest is dropped first, and a line in its place says how
// much. Threading: confined; OutputSink guards it.
class OutputBuffer {
 public:
  explicit OutputBuffer(size_t bytes_max) : bytes_max_(bytes_max) {}

  // `lines`: as one piece, which is kept or dropped whole; one longer than the limit is dropped at once.
  void Add(std::string lines);
  // The next at most `bytes_max` bytes, cut behind a line end where there is one. Empty when nothing waits.
  std::string Take(size_t bytes_max);
  void Clear();

  bool empty() const { return pieces_.empty() && unreported_ == 0; }
  size_t bytes() const { return bytes_; }
  uint64_t dropped() const { return dropped_; }

 private:
  std::string TakeNotice();

  const size_t bytes_max_;
  std::deque<std::string> pieces_;
  size_t bytes_ = 0;
  uint64_t dropped_ = 0;
  uint64_t unreported_ = 0;
  bool at_line_start_ = true;
};

}  // namespace monarch
