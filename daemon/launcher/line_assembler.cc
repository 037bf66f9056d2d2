#include "daemon/launcher/line_assembler.h"

#include <utility>

namespace monarch {

std::string LineAssembler::Add(std::string_view bytes) {
  held_.append(bytes);
  const size_t end = held_.find_last_of("\r\n");
  const size_t rest = end == std::string::npos ? held_.size() : held_.size() - end - 1;
  if (rest > line_bytes_max_) return Flush();
  if (end == std::string::npos) return {};
  std::string complete = held_.substr(0, end + 1);
  held_.erase(0, end + 1);
  return complete;
}

std::string LineAssembler::Flush() { return std::exchange(held_, {}); }

}  // namespace monarch
