#include "daemon/launcher/output_buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {

void OutputBuffer::Add(std::string lines) {
  if (lines.empty()) return;
  bytes_ += lines.size();
  pieces_.push_back(std::move(lines));
  while (bytes_ > bytes_max_) {
    const size_t oldest = pieces_.front().size();
    bytes_ -= oldest;
    dropped_ += oldest;
    unreported_ += oldest;
    pieces_.pop_front();
  }
}

std::string OutputBuffer::TakeNotice() {
  std::string notice = absl::StrCat(at_line_start_ ? "" : "\n", "monarch: ", unreported_,
                                    " bytes of output dropped: its reader is too slow\n");
  unreported_ = 0;
  at_line_start_ = true;
  return notice;
}

std::string OutputBuffer::Take(size_t bytes_max) {
  // The dropped bytes are older than all that waits.
  if (unreported_ > 0) return TakeNotice();
  std::string chunk;
  while (!pieces_.empty() && chunk.size() < bytes_max) {
    std::string& piece = pieces_.front();
    const size_t room = bytes_max - chunk.size();
    if (piece.size() <= room) {
      chunk += piece;
      pieces_.pop_front();
      continue;
    }
    const size_t end = std::string_view(piece).substr(0, room).rfind('\n');
    // A line is cut only if it alone is longer than a chunk.
    const size_t cut = end != std::string::npos ? end + 1 : (chunk.empty() ? room : 0);
    chunk.append(piece, 0, cut);
    piece.erase(0, cut);
    break;
  }
  bytes_ -= chunk.size();
  if (!chunk.empty()) at_line_start_ = chunk.back() == '\n';
  return chunk;
}

void OutputBuffer::Clear() {
  pieces_.clear();
  bytes_ = 0;
  unreported_ = 0;
}

}  // namespace monarch
