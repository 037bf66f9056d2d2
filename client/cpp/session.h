#pragma once

#include <unistd.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/cpp/control/control_channel.h"
#include "client/cpp/runtime/runtime.h"
#include "message/hang_notice.h"
#include "monarch/client.h"

namespace monarch::internal {

// A client's session: the runtime, the control channel (opened at the first spawn or stop), and the thread
// that hears of failures nobody handled. Threading: thread-safe.
class Session {
 public:
  static absl::StatusOr<std::shared_ptr<Session>> Open(ConnectOptions options);
  ~Session();
  // Ends it, although meshes may still refer to it; their calls fail from now on. Idempotent.
  void End();

  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  ControlChannel& control() { return *control_; }

 private:
  // What the watching thread uses. It outlives a session that is ended in on_failure, which is that thread.
  struct Watch {
    std::shared_ptr<Runtime> runtime;
    std::function<bool(const FailureEvent&)> on_failure;
    std::shared_ptr<Inbox> root;
    std::shared_ptr<Notifier> notifier;
    std::function<void(const HangReport&)> on_hang;
    std::atomic<bool> closing{false};
    Mutex mu;
    std::deque<HangNotice> hangs ABSL_GUARDED_BY(mu);
  };
  Session(std::shared_ptr<Runtime> runtime, ConnectOptions options);
  static void WatchFailures(Watch& watch);
  static void TellHangs(Watch& watch);

  const std::shared_ptr<Runtime> runtime_;
  const pid_t pid_ = getpid();
  std::unique_ptr<ControlChannel> control_;  // constant, but in a forked child
  const std::shared_ptr<Watch> watch_;
  std::thread watcher_;
};

struct ProcMeshCore {
  std::shared_ptr<Session> session;
  std::string name;
  Shape shape;                     // as spawned
  std::vector<ProcAddress> procs;  // in rank order
  std::vector<int64_t> pids;
};

struct ActorMeshCore {
  std::shared_ptr<Session> session;
  std::string name;
  std::string actor_class;
  uint64_t actor = 0;
  Shape shape;                     // as spawned
  std::vector<ProcAddress> procs;  // in rank order
  absl::Duration hung_after = absl::ZeroDuration();
};

}  // namespace monarch::internal
