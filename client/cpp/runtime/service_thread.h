#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "base/event_loop.h"

namespace monarch {

// The thread that keeps a process's end of the control plane alive, whatever its user code does: it blocks
// all signals and never needs the interpreter. Threading: confined to its owner; `loop` as EventLoop.
class ServiceThread {
 public:
  // `first` runs on the new thread before Start returns (a client's life-line is taken there: the thread
  // lives as long as the process, while the thread that connects need not). Its status is Start's.
  static absl::StatusOr<std::unique_ptr<ServiceThread>> Start(std::function<absl::Status()> first);
  // Stops and joins.
  ~ServiceThread();
  // Lets the loop run; until then the thread waits.
  void Run();
  // In a forked child there is no thread to join, and nothing may be touched.
  void Abandon();
  const std::shared_ptr<EventLoop>& loop() const { return loop_; }

 private:
  struct Shared;
  ServiceThread() = default;
  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace monarch
