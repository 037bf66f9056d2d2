#pragma once

#include <string>
#include <vector>

#include "client/cpp/ctl/stacks.h"

namespace monarch::ctl {

// The threads of each process, Python's frames before the native ones. Pure.
std::string FormatStacks(const std::vector<ProcessStacks>& processes);

// {"processes": [{"process", "pid", "at_work": [], "error", "threads": [{"tid", "name", "holds_interpreter",
// "python": [], "native": []}]}]}; "error" only if something could not be read. Pure.
std::string FormatStacksJson(const std::vector<ProcessStacks>& processes);

}  // namespace monarch::ctl
