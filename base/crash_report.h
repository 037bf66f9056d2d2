#pragma once

#include <string_view>

namespace monarch {

// How the lines of a crash report begin, which a dying process writes to its stderr: first a line that says
// what happened, then one for each native frame: "#0 0x<pc> in <symbol>+0x<offset> (<file>+0x<offset>)".
inline constexpr std::string_view kCrashLinePrefix = "*** monarch: ";
inline constexpr int kCrashFramesMax = 64;

}  // namespace monarch
