#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "monarch/actor.h"
#include "monarch/future.h"
#include "monarch/mesh.h"

namespace monarch {

// An actor that has been in one handler for longer than its mesh's threshold (ProcMesh::WithHungAfter), or
// that has come out of it. Nothing has failed. Plain data.
struct HangReport {
  FailureEvent event;  // of kind kHung: who, and as its reason a line that says what follows
  std::string method;  // the endpoint, or "constructor", "OnFailure", "OnStop"; its first bytes
  absl::Duration age;  // since when it is in it; of one that has recovered, how long it was
  std::string
      state;  // what its thread did: stopped, starved, interpreter held, computing, waiting; "": not known
  bool recovered = false;  // that handler has ended
};

struct ConnectOptions {
  // "": MONARCH_ADDRESS, else the system's daemon, else a private one that goes with this process. "private",
  // or "unix:DIR" for the daemon whose run directory is DIR.
  std::string address;
  std::string monarchd_path;  // of a private daemon; "": found beside this program, else on PATH
  std::string name;           // shown by monarchctl; "": the program's name
  // A failure of something this program spawned that nobody handled. True: handled. Default: the report goes
  // to stderr, and the process ends with status 1, without destructors. Runs on a thread of its own.
  std::function<bool(const FailureEvent&)> on_failure;
  // An actor that this program's code outside actors spawned hangs, or has recovered. Default: a line in the
  // log. Runs on the thread of on_failure, one call at a time.
  std::function<void(const HangReport&)> on_hang;
};

// A program's connection: one session, which ends with it. One per process at a time.
// Threading: thread-safe.
class Client {
 public:
  // Unavailable: no daemon, or none that answers within 5 s or speaks this version.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ConnectOptions options = {});
  // Ends the session: its actors handle what they have got, OnStop runs, and processes leave. What has not
  // done so after 5 s is killed. Meshes that are left are of no use.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  HostMesh this_host() const;
  // The event of a failed call (FailureOf), and its causes, with what became known of a process's death after
  // the error was raised: last lines of stderr, native back-trace, whether it was for lack of memory. Waits
  // at most `timeout` for that.
  FailureEvent WithDetail(const FailureEvent& event, absl::Duration timeout = absl::Seconds(2)) const;

 private:
  explicit Client(std::shared_ptr<internal::Session> session) : session_(std::move(session)) {}
  std::shared_ptr<internal::Session> session_;
};

}  // namespace monarch
