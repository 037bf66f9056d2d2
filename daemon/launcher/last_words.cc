#include "daemon/launcher/last_words.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/crash_report.h"
#include "message/utf8.h"

namespace monarch {
namespace {

constexpr size_t kReportLinesMax = kCrashFramesMax + 2;  // what happened, and that there are more frames
constexpr size_t kReportLineBytesMax = 1000;
// Together with the tail it must fit a control packet.
constexpr size_t kReportBytesMax = 16 << 10;
// Longer ones may cost more than they tell.
constexpr size_t kMangledBytesMax = 512;
constexpr std::string_view kBeforeName = " in ";
// What a mangled name may refer to again: each reference may double it, so that few bytes stand for
// gigabytes.
constexpr int kReferencesMax = 32;
// An expansion of a pack repeats what it is of, once for each member.
constexpr int kExpansionReferences = 8;

// Counts some text of identifiers as well.
int ReferencesIn(std::string_view mangled) {
  int count = 0;
  for (size_t i = 0; i + 1 < mangled.size(); ++i) {
    const char here = mangled[i];
    const char next = mangled[i + 1];
    const bool is_index = absl::ascii_isdigit(next) || absl::ascii_isupper(next) || next == '_';
    if ((here == 'S' || here == 'T') && is_index) ++count;
    if ((here == 'D' || here == 's') && next == 'p') count += kExpansionReferences;
  }
  return count;
}

// "#1 0x1 in _Z3foov+0x2 (a.so+0x3)" with the name as C++ has it.
std::string Readable(const std::string& line) {
  const size_t found = line.find(kBeforeName);
  if (found == std::string::npos) return line;
  const size_t begin = found + kBeforeName.size();
  const size_t end = line.find('+', begin);
  if (end == std::string::npos || end - begin > kMangledBytesMax) return line;
  const std::string name = line.substr(begin, end - begin);
  if (!absl::StartsWith(name, "_Z") || ReferencesIn(name) > kReferencesMax) return line;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return line;
  const std::string shown(readable.get());
  return absl::StrCat(line.substr(0, begin), shown.substr(0, kReportLineBytesMax), line.substr(end));
}

}  // namespace

void LastWords::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end == std::string_view::npos ? end : end + 1);
    if (!line_open_) {
      line_is_report_ = piece.substr(0, kCrashLinePrefix.size()) == kCrashLinePrefix;
      // The first ones say where it was.
      line_is_left_out_ = line_is_report_ && report_.size() == kReportLinesMax;
      if (line_is_report_ && !line_is_left_out_) report_.emplace_back();
    }
    if (line_is_report_) {
      AddToReport(piece);
    } else {
      tail_.Add(piece);
    }
    line_open_ = end == std::string_view::npos;
    bytes.remove_prefix(piece.size());
  }
}

void LastWords::AddToReport(std::string_view piece) {
  if (line_is_left_out_) return;
  std::string& line = report_.back();
  if (!piece.empty() && piece.back() == '\n') piece.remove_suffix(1);
  line.append(piece.substr(0, kReportLineBytesMax - std::min(line.size(), kReportLineBytesMax)));
}

std::string LastWords::Backtrace() const {
  std::string text;
  for (const std::string& line : report_) {
    const std::string shown = ToUtf8(Readable(line.substr(kCrashLinePrefix.size())));
    if (text.size() + shown.size() + 1 > kReportBytesMax) break;
    absl::StrAppend(&text, text.empty() ? "" : "\n", shown);
  }
  return text;
}

}  // namespace monarch
