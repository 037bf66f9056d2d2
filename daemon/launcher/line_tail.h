#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace monarch {

// Keeps the last lines of a stream, each cut at a limit, so that one message can carry them.
// Threading: confined to the launcher's loop.
class LineTail {
 public:
  struct Options {
    size_t lines_max = 50;
    size_t line_bytes_max = 800;
    size_t text_bytes_max = 24 << 10;  // the last lines that fit; well below a control packet
  };

  explicit LineTail(Options options) : options_(options) {}
  // Pieces of any size.
  void Add(std::string_view bytes);
  // UTF-8 whatever came in; without a final line end.
  std::string Text() const;

 private:
  const Options options_;
  std::deque<std::string> lines_;
  bool open_ = false;  // the last line has not ended
};

}  // namespace monarch
