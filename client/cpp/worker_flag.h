#pragma once

#include <string_view>

namespace monarch {

// First argument of a program that was started again as a worker of its own mesh.
inline constexpr std::string_view kWorkerFlag = "--monarch-worker";

}  // namespace monarch
