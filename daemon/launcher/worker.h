#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/launcher/child_process.h"
#include "daemon/launcher/control_channel.h"
#include "daemon/launcher/death_report.h"
#include "daemon/launcher/last_words.h"
#include "daemon/launcher/launcher_messages.h"
#include "daemon/launcher/memory_kills.h"
#include "daemon/launcher/obituaries.h"
#include "daemon/launcher/output_drain.h"
#include "daemon/launcher/session_output.h"
#include "message/lifeline.h"

namespace monarch {

// One child of the launcher: starts it, watches its life-line's word, pidfd, socket and output, reaps it.
// Threading: confined to the launcher's loop; Start on the process's main thread (it is the one whose end the
// child's parent-death signal follows).
class Worker {
 public:
  // In this order: launched or launch failed (then only reaped); dying; exited; reaped. Never inside Start.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnLaunched(Worker& worker) = 0;
    virtual void OnLaunchFailed(Worker& worker, const LaunchFailure& failure) = 0;
    virtual void OnDying(Worker& worker, const WorkerDying& dying) = 0;
    virtual void OnExited(Worker& worker, const WorkerExit& exit) = 0;
    // Last, and also after a launch failed. `ran`: it may have left processes behind.
    virtual void OnReaped(Worker& worker, bool ran) = 0;
  };
  // All outlive the worker.
  struct Context {
    EventLoop* loop = nullptr;
    LifelineWatcher* lifelines = nullptr;
    Obituaries* obituaries = nullptr;
    SessionOutput* output = nullptr;
    MemoryKills* memory_kills = nullptr;
    Events* events = nullptr;
  };

  // `key`: names it to the watcher of life-lines. `cgroup`: the directory of its own one; empty: it has none.
  Worker(const Context& context, uint64_t key, ProcAddress proc, OutputSource source, std::string cgroup);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `spec`: all but stdio and launcher socket, which are added here. Once.
  absl::Status Start(ChildSpec spec, const WorkerBoot& boot, StartFailure* failure);

  void LifelineFired();
  // To the process; nothing once it is reaped.
  void Signal(int signal);
  // Asks it to stop its actors and leave within that time. False: it cannot be asked (yet).
  bool AskToLeave(const std::string& reason, absl::Duration grace);
  // What its pipes hold now; for the session's end.
  void DrainOutput();

  uint64_t key() const { return key_; }
  pid_t pid() const { return child_.pid; }
  const ProcAddress& proc() const { return proc_; }
  bool reaped() const { return reaped_; }
  // Reaped, and nobody holds its output open.
  bool finished() const;

 private:
  absl::Status OpenChannel(ScopedFd* worker_end);
  absl::Status OpenOutput(ScopedFd* out, ScopedFd* err);
  std::unique_ptr<OutputDrain> MakeDrain(OutputStream stream, ScopedFd pipe);
  absl::Status WatchChild();
  void OnMessage(const ControlMessage& message, std::vector<ScopedFd> fds);
  void OnOutcome();
  void OnPidfd();
  void Tell(const DeathReport::Step& step);

  // Constant after construction.
  const Context context_;
  const uint64_t key_;
  const ProcAddress proc_;
  const OutputSource source_;
  const std::string cgroup_;

  // Confined to the loop.
  StartedChild child_;
  std::unique_ptr<ControlChannel> channel_;
  LastWords last_words_;  // before the drains, which give out their last line at their end
  std::unique_ptr<OutputDrain> out_;
  std::unique_ptr<OutputDrain> err_;
  DeathReport report_;
  EventLoop::TimerId wait_timer_ = 0;
  bool waiting_ = false;
  bool start_failed_ = false;
  bool listens_ = false;  // on its socket
  bool reaped_ = false;
  int64_t maxrss_kib_ = 0;
};

}  // namespace monarch
