// A worker for process_test: echoes, tells its doorbell's counts, dies when told to.

#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/runtime/runtime.h"
#include "message/doorbell.h"

namespace monarch {
namespace {

void Answer(Runtime& runtime, const Message& message) {
  const absl::Span<uint8_t> part =
      message.view.parts.empty() ? absl::Span<uint8_t>() : message.view.parts.front();
  std::string text(reinterpret_cast<const char*>(part.data()), part.size());
  if (text == "die") raise(SIGKILL);
  if (text == "counts") {
    const Runtime::Stats stats = runtime.stats();
    text = std::to_string(stats.futex_wakes) + " " + std::to_string(stats.bell_writes);
  }
  const absl::Span<const uint8_t> out(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  static_cast<void>(runtime.Reply(message, FrameKind::kReply, {PayloadKind::kRaw, {}, {&out, 1}}));
}

void RunActor(Runtime& runtime, const RuntimeTask& task) {
  runtime.BindActor(task.actor);
  while (true) {
    static_cast<void>(runtime.Wait(*task.mailbox, absl::InfiniteDuration()));
    if (task.mailbox->finished()) return;
    while (auto message = task.mailbox->TryPop()) Answer(runtime, *message);
  }
}

int Run() {
  auto runtime = Runtime::StartWorker();
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n", runtime.status().ToString().c_str());
    return 1;
  }
  if (!(*runtime)->SendReady().ok()) return 1;
  while (true) {
    const auto task = (*runtime)->NextTask(absl::InfiniteDuration());
    if (!task.ok()) continue;
    if (task->kind == RuntimeTask::Kind::kStopProcess) std::_Exit(task->reason == (*runtime)->boot() ? 0 : 2);
    if (task->kind != RuntimeTask::Kind::kCreateActor) continue;
    std::thread([&runtime, task = *task] { RunActor(**runtime, task); }).detach();
  }
}

}  // namespace
}  // namespace monarch

int main() { return monarch::Run(); }
