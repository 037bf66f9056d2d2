#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "base/log.h"
#include "client/cpp/actor_pool.h"
#include "client/cpp/runtime/crash_handler.h"
#include "client/cpp/runtime/runtime.h"
#include "client/cpp/worker_flag.h"
#include "monarch/actor.h"

namespace monarch {

namespace {

// Part of a stop's grace that is left for leaving the process after the actors were stopped.
constexpr double kLeaveShare = 0.1;

// Without the end of C++'s statics, which the actors that do not end may use.
[[noreturn]] void LeaveAtWork(const RuntimeTask& stop) {
  if (!stop.session_ends) {
    LogWarning("worker", "the process leaves while actors are at work")
        .With("reason", stop.reason)
        .With("after", absl::FormatDuration(stop.grace));
  }
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  _exit(0);
}

}  // namespace

bool IsWorker(int argc, char** argv) { return argc > 1 && std::string_view(argv[1]) == kWorkerFlag; }

int RunWorker(const ActorTypes& types) {
  auto runtime = Runtime::StartWorker();
  if (!runtime.ok()) {
    LogError("worker", "could not start").With("status", runtime.status().ToString());
    return 1;
  }
  if (const absl::Status installed = InstallCrashHandler(); !installed.ok()) {
    LogWarning("worker", "crashes will not be reported").With("status", installed.ToString());
  }
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 2, 8);
  ActorPool pool(runtime->get(), &types, threads);
  if (const absl::Status ready = (*runtime)->SendReady(); !ready.ok()) {
    LogError("worker", "could not tell the daemon").With("status", ready.ToString());
    return 1;
  }
  while (true) {
    auto task = (*runtime)->NextTask(absl::InfiniteDuration());
    if (absl::IsCancelled(task.status())) continue;  // A signal whose handler returned.
    if (!task.ok()) return 1;
    if (task->kind == RuntimeTask::Kind::kStopProcess) {
      AwaitCrash();
      if (!pool.StopActors(task->reason, task->grace * (1 - kLeaveShare))) LeaveAtWork(*task);
      pool.StopAll(task->reason);
      return 0;
    }
    if (task->kind == RuntimeTask::Kind::kAskInterpreter) {
      (*runtime)->InterpreterCame();
    } else if (task->kind == RuntimeTask::Kind::kHang) {
      LogWarning("worker", "an actor hangs").With("who", task->hang->event.Summary());
    } else {
      pool.Add(*std::move(task));
    }
  }
}

}  // namespace monarch
