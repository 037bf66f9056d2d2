#include "client/cpp/ctl/target.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace monarch::ctl {

Target ParseTarget(const std::string& text) {
  Target target;
  target.name = text;
  int64_t pid = 0;
  if (absl::SimpleAtoi(text, &pid)) target.pid = pid;
  std::string rest = text;
  if (absl::EndsWith(rest, "]")) rest.pop_back();
  const size_t at = rest.find_last_of(rest.size() < text.size() ? '[' : ':');
  uint32_t rank = 0;
  if (at != std::string::npos && absl::SimpleAtoi(rest.substr(at + 1), &rank)) {
    target.mesh = rest.substr(0, at);
    target.rank = rank;
  }
  return target;
}

}  // namespace monarch::ctl
