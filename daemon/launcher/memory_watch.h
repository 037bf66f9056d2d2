#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"

namespace monarch {

// Tells when the kernel has counted something in the events file of cgroups: at once, by a poll of the open
// file, where inotify would tell it through a queue of the kernel's. Threading: confined to the loop.
class MemoryWatch {
 public:
  // `on_change`: gets the directory of the cgroup. `file`: within it.
  MemoryWatch(EventLoop* loop, std::function<void(const std::string& cgroup)> on_change,
              std::string file = "memory.events")
      : loop_(loop), on_change_(std::move(on_change)), file_(std::move(file)) {}
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Until `Remove`; holds an fd. Errors: it counts no memory; no fd is left.
  absl::Status Add(const std::string& cgroup);
  // One that was not added, too.
  void Remove(const std::string& cgroup);

 private:
  void OnReady(const std::string& cgroup);

  EventLoop* const loop_;
  const std::function<void(const std::string&)> on_change_;
  const std::string file_;
  std::map<std::string, ScopedFd> files_;  // by cgroup
};

}  // namespace monarch
