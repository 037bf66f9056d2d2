#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/ndslice.h"
#include "monarch/codec.h"
#include "monarch/future.h"

namespace monarch {

namespace internal {
class Session;
struct ActorMeshCore;
struct ProcMeshCore;
}  // namespace internal

// Named sizes, outermost first: {{"hosts", 2}, {"gpus", 8}}.
using Dims = std::vector<std::pair<std::string, size_t>>;

// Actors of one class, one in each proc of a mesh. A slice is a view: it shares the actors. Copies are
// references; dropping the last one stops nothing. Threading: thread-safe. All calls from code outside actors
// count as one sender: they arrive in the order made.
class ActorMesh {
 public:
  const Shape& shape() const { return shape_; }
  size_t size() const { return shape_.size(); }

  // Every member; the answers as a mesh of the same shape.
  template <typename R, typename... Args>
  MeshFuture<R> Call(const std::string& method, Args&&... args) const {
    auto call = Start(method, EncodeArgs(std::forward<Args>(args)...));
    if (!call.ok()) return MeshFuture<R>(call.status());
    return MeshFuture<R>(shape_, *std::move(call));
  }
  // The one member. InvalidArgument if there are more.
  template <typename R, typename... Args>
  Future<R> CallOne(const std::string& method, Args&&... args) const {
    auto call = StartOne(method, EncodeArgs(std::forward<Args>(args)...));
    if (!call.ok()) return Future<R>(call.status());
    return Future<R>(*std::move(call));
  }
  // One member, at random.
  template <typename R, typename... Args>
  Future<R> Choose(const std::string& method, Args&&... args) const {
    auto call = StartRandom(method, EncodeArgs(std::forward<Args>(args)...));
    if (!call.ok()) return Future<R>(call.status());
    return Future<R>(*std::move(call));
  }
  // Every member, without answers. A member whose endpoint fails then fails itself, and its owner is told.
  template <typename... Args>
  absl::Status Broadcast(const std::string& method, Args&&... args) const {
    return Send(method, EncodeArgs(std::forward<Args>(args)...));
  }

  // The same members, for calls whose answers are waited for at most so long, from the call on. Then each
  // answer that is missing is DeadlineExceeded, and the callees are told (see Future). InfiniteDuration: no
  // limit.
  ActorMesh WithTimeout(absl::Duration limit) const { return ActorMesh(core_, shape_, limit); }

  // One coordinate of a dimension (which goes), or a range of it. NotFound, OutOfRange.
  absl::StatusOr<ActorMesh> At(const std::string& label, size_t index) const;
  absl::StatusOr<ActorMesh> Select(const std::string& label, size_t begin, size_t end, size_t step = 1) const;

  // Stops the members, what they own first. OK when they are gone, dead members included.
  Future<void> Stop(const std::string& reason = "stopped by client") const;

 private:
  friend class ProcMesh;
  ActorMesh(std::shared_ptr<internal::ActorMeshCore> core, Shape shape,
            absl::Duration limit = absl::InfiniteDuration())
      : core_(std::move(core)), shape_(std::move(shape)), limit_(limit) {}
  using StartedCall = absl::StatusOr<std::shared_ptr<internal::PendingCall>>;
  StartedCall Start(const std::string& method, const Value& args) const;
  StartedCall StartOne(const std::string& method, const Value& args) const;
  StartedCall StartRandom(const std::string& method, const Value& args) const;
  absl::Status Send(const std::string& method, const Value& args) const;

  std::shared_ptr<internal::ActorMeshCore> core_;
  Shape shape_;
  absl::Duration limit_;  // of each call
};

// Worker processes. A slice is a view. Threading: thread-safe.
class ProcMesh {
 public:
  const Shape& shape() const { return shape_; }
  size_t size() const { return shape_.size(); }

  // One actor of the class (a name of the program's ActorTypes) in each process. OK when every mailbox
  // exists; a constructor that fails is a failure of that actor.
  template <typename... Args>
  absl::StatusOr<ActorMesh> Spawn(const std::string& name, const std::string& actor_class,
                                  Args&&... args) const {
    return SpawnActors(name, actor_class, EncodeArgs(std::forward<Args>(args)...));
  }

  absl::StatusOr<ProcMesh> At(const std::string& label, size_t index) const;
  absl::StatusOr<ProcMesh> Select(const std::string& label, size_t begin, size_t end, size_t step = 1) const;

  // The same processes. Of actors spawned through the result, one that is in one handler for longer than
  // `threshold` (0.1 s at least) is told to their owner: ConnectOptions::on_hang. Zero: never, the default.
  ProcMesh WithHungAfter(absl::Duration threshold) const { return ProcMesh(core_, shape_, threshold); }

  // Stops actors, then processes: asked, TERM after `grace`, KILL a second later. OK when they are gone.
  absl::Status Stop(absl::Duration grace = absl::Seconds(10)) const;

  std::vector<int64_t> pids() const;

 private:
  friend class HostMesh;
  ProcMesh(std::shared_ptr<internal::ProcMeshCore> core, Shape shape,
           absl::Duration hung_after = absl::ZeroDuration())
      : core_(std::move(core)), shape_(std::move(shape)), hung_after_(hung_after) {}
  absl::StatusOr<ActorMesh> SpawnActors(const std::string& name, const std::string& actor_class,
                                        const Value& args) const;

  std::shared_ptr<internal::ProcMeshCore> core_;
  Shape shape_;
  absl::Duration hung_after_;
};

struct SpawnOptions {
  std::string name = "anon";
  std::vector<std::string> env;                         // "K=V", over this process's environment
  absl::Duration phase_timeout = absl::ZeroDuration();  // zero: the daemon's default
  // For each process with all that it starts; 0: no limit. They need a session with a cgroup of its own
  // (docs/limits.md); else the spawn fails and says what is missing.
  int64_t memory_bytes_max = 0;  // beyond it the process is killed, and what it started
  int64_t pids_max = 0;          // processes and threads; beyond it none can be made
};

// The local host. Threading: thread-safe.
class HostMesh {
 public:
  // Starts prod(per_host) processes of this program's binary, or none: then the error says which rank failed,
  // in which phase, with which status, and its last stderr lines.
  absl::StatusOr<ProcMesh> SpawnProcs(const Dims& per_host, const SpawnOptions& options = {}) const;

 private:
  friend class Client;
  explicit HostMesh(std::shared_ptr<internal::Session> session) : session_(std::move(session)) {}
  std::shared_ptr<internal::Session> session_;
};

}  // namespace monarch
