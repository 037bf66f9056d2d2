#pragma once

#include "absl/functional/function_ref.h"

namespace monarch {

// Runs `body` in a child process in which no packet with an fd can be sent, for as many fds are under way as
// its user may have; `release` brings them back. The child's exit status: what `body` returned, 100 if the
// fds could not be brought under way, -1 if the child did not exit.
int RunWithManyFdsUnderWay(absl::FunctionRef<int(absl::FunctionRef<void()> release)> body);

}  // namespace monarch
