#pragma once

namespace monarch {

// The one place that says it: daemon, monarchctl and the Python package (setup.py reads this line).
inline constexpr char kVersion[] = "0.1.0";

}  // namespace monarch
