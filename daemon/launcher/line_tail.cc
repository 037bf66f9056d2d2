#include "daemon/launcher/line_tail.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "message/utf8.h"

namespace monarch {

void LineTail::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (!open_) lines_.emplace_back();
    std::string& line = lines_.back();
    line.append(piece.substr(0, options_.line_bytes_max - std::min(line.size(), options_.line_bytes_max)));
    open_ = end == std::string_view::npos;
    if (lines_.size() > options_.lines_max) lines_.pop_front();
    bytes.remove_prefix(open_ ? bytes.size() : end + 1);
  }
}

std::string LineTail::Text() const {
  std::deque<std::string> shown;
  size_t bytes = 0;
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    shown.push_front(ToUtf8(*line));
    bytes += shown.front().size() + 1;
    if (bytes <= options_.text_bytes_max + 1) continue;
    shown.pop_front();
    break;
  }
  return absl::StrJoin(shown, "\n");
}

}  // namespace monarch
