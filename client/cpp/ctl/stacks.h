#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/ctl/daemon_query.h"
#include "client/cpp/ctl/frozen_process.h"
#include "client/cpp/ctl/python_stack.h"

namespace monarch::ctl {

// A process of a session, and the stacks of its threads. Plain data.
struct ProcessStacks {
  std::string what;  // "trainers:3", "client train.py"
  int64_t pid = 0;
  std::vector<std::string> at_work;  // its actors' handlers: "trainers:3 train 3m12s waiting"
  absl::Status native_answer;
  std::vector<NativeThread> native;
  absl::Status python_answer;  // OK also if it is no Python
  std::vector<PythonThread> python;
};

// The processes that `target` (target.h) names, in the order in which the daemons tell of them; of an actor
// mesh those that its members are in; without one, all workers and clients. Their stacks are empty. Pure.
std::vector<ProcessStacks> FindProcesses(const std::string& target, const std::vector<Snapshot>& snapshots);

// Stops the process while it reads its stacks. Takes about `timeout` at most; without time left it is not
// touched (DeadlineExceeded).
void ReadStacks(ProcessStacks* process, absl::Duration timeout);

}  // namespace monarch::ctl
