#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/scoped_fd.h"
#include "message/doorbell.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_loop.h"

namespace monarch::sim {

// What a run shares: time, chance, the trace, and the loop of everything that is not a daemon.
// Threading: confined to the simulation's thread.
class World {
 public:
  explicit World(uint64_t seed);

  absl::Duration Now() const { return clock_.Now(); }
  // Since the start; for texts.
  std::string Stamp() const;
  Random& random() { return random_; }
  SimClock& clock() { return clock_; }
  // Of all processes but daemons, and of the wires between hosts.
  SimLoop& outside() { return outside_; }
  void After(absl::Duration delay, EventLoop::Task task) { outside_.RunAfter(delay, std::move(task)); }

  // Beyond every real process's number.
  pid_t NewPid() { return next_pid_++; }
  Id128 NewId() { return random_.Id(); }

  template <typename... Args>
  void Trace(const Args&... args) {
    trace_.push_back(absl::StrCat(Stamp(), " ", args...));
    if (echo_) Echo(trace_.back());
  }
  template <typename... Args>
  void Violate(const Args&... args) {
    violations_.push_back(absl::StrCat(Stamp(), " ", args...));
    Trace("VIOLATION: ", args...);
  }
  const std::vector<std::string>& trace() const { return trace_; }
  const std::vector<std::string>& violations() const { return violations_; }
  // Each line goes to stderr at once, among the daemons' logs.
  void set_echo(bool echo) { echo_ = echo; }

  // What processes hand over in their hellos; theirs need no content here.
  const Doorbell& doorbell() const { return doorbell_; }
  int segment() const { return segment_.get(); }
  int null() const { return null_.get(); }
  // A pidfd of what outlives the run.
  const ScopedFd& forever() const { return forever_; }

 private:
  static void Echo(const std::string& line);

  SimClock clock_;
  const absl::Duration start_;
  Random random_;
  SimLoop outside_;
  pid_t next_pid_ = 10'000'000;
  std::vector<std::string> trace_;
  std::vector<std::string> violations_;
  bool echo_ = false;
  Doorbell doorbell_;
  ScopedFd segment_;
  ScopedFd null_;
  ScopedFd forever_;
};

}  // namespace monarch::sim
