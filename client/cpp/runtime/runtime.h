#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/ndslice.h"
#include "base/scoped_fd.h"
#include "client/cpp/runtime/client_options.h"
#include "client/cpp/runtime/inbox.h"
#include "message/frame.h"
#include "message/hang_notice.h"
#include "message/mesh_restarts.h"
#include "message/value.h"

namespace monarch {

// Bytes to be sent: the meta (value codec) and the parts, copied before the call returns.
struct Outgoing {
  PayloadKind kind = PayloadKind::kNone;
  std::string_view meta;
  absl::Span<const absl::Span<const uint8_t>> parts;
  // A wait for room ends after `sleep_max` as if by a signal, for who may have missed one. Who then sends
  // again says how long it has `waited`: that goes off send_wait_ms.
  absl::Duration sleep_max = absl::InfiniteDuration();
  absl::Duration waited = absl::ZeroDuration();
};

struct CallTarget {
  ActorAddress actor;
  uint32_t rank = 0;  // in the mesh called; comes back with the answer
};

// What this process owns, for supervision: whose code spawned which mesh.
struct OwnedMesh {
  uint64_t owner = 0;       // actor of this proc
  std::string mesh;         // given name
  std::string actor_class;  // empty: a mesh of procs
  uint64_t actor = 0;       // 0: a mesh of procs
  std::vector<ProcAddress> procs;
  Shape shape;  // as spawned
  // Of each rank, where not all are `actor`: members that were made again.
  std::vector<uint64_t> actors = {};
};

// Work for the language layer, which the runtime cannot do itself.
struct RuntimeTask {
  enum class Kind { kCreateActor, kStopProcess, kAskInterpreter, kHang };
  Kind kind = Kind::kStopProcess;
  // kCreateActor: the create message (meta as in WIRE.md) and the new actor's mailbox, which fills from now
  // on. The layer starts a thread for it, which calls BindActor first.
  uint64_t actor = 0;
  Message create;
  std::shared_ptr<Inbox> mailbox;
  // kStopProcess: stop all actors (cleanup included), then leave with status 0. Comes when the daemon says
  // stop, or when daemon or launcher are gone.
  std::string reason;
  absl::Duration grace;
  bool session_ends = false;  // all processes stop at the same time, and none outlives the grace
  std::optional<HangNotice> hang = std::nullopt;  // kHang: of an actor that one of this process owns
};

// One process's part in the message plane: doorbell, links, actors, calls, and the service thread. One per
// process. No call blocks on the interpreter's lock, and no user code runs on the service thread. Threading:
// thread-safe, unless said otherwise. After fork() the child's calls fail with FailedPrecondition.
class Runtime {
 public:
  // Connects to (or starts) a daemon and opens a session. kRootActor has a mailbox from the start.
  // Unavailable: no daemon, or it does not answer in 5 s (names both versions if they differ).
  static absl::StatusOr<std::unique_ptr<Runtime>> StartClient(const ClientOptions& options);
  // In a worker: fds 3 and 4, in the order of WIRE.md. The calling thread must be the main thread and live as
  // long as the process (it holds the life-line). Afterwards SendReady() when the process can create actors.
  static absl::StatusOr<std::unique_ptr<Runtime>> StartWorker();
  // A client that has not said goodbye says it now, without waiting for what is left of its session.
  virtual ~Runtime() = default;

  virtual ProcAddress self() const = 0;
  virtual SessionId session() const = 0;
  // What requests on the control plane name, to be those of this process.
  virtual StartToken control_token() const = 0;
  virtual std::string host_name() const = 0;
  virtual std::string boot() const = 0;  // a worker's boot bytes
  virtual const Limits& limits() const = 0;
  virtual absl::Status SendReady() = 0;
  // A socket on which the daemon serves gRPC for this session: the fd for a control channel.
  virtual absl::StatusOr<ScopedFd> OpenControl() = 0;
  // Ends a client's session: returns when nothing of it is left on this host, or after `timeout`
  // (DeadlineExceeded). Its processes have `grace` for what reached them and their clean-ups; zero: a second.
  virtual absl::Status Goodbye(absl::Duration timeout, absl::Duration grace = absl::ZeroDuration()) = 0;

  // --- sleeping; all of these drain what has arrived, on the calling thread ---
  // OK: `inbox` is not empty, or finished. DeadlineExceeded: `timeout` passed. Cancelled: a signal came.
  // If the thread runs an actor, and waits for answers without a limit: where actors that wait for each other
  // are found, one call that is still queued gets a kException with type ABORTED and `deadlock`, the cycle.
  virtual absl::Status Wait(Inbox& inbox, absl::Duration timeout) = 0;
  // The same for an event loop's thread: OK when `notifier` has news. With `epoll_fd` >= 0 also returns OK
  // when that is readable; else it sleeps on the thread's wait word.
  virtual absl::Status WaitNotifier(Notifier& notifier, int epoll_fd, absl::Duration timeout) = 0;
  // Wakes WaitNotifier from another thread (call_soon_threadsafe).
  virtual void WakeNotifier(Notifier& notifier) = 0;
  virtual std::shared_ptr<Notifier> MakeNotifier() = 0;
  // While a foreign event loop awaits something: news must reach it through the service thread.
  virtual void AddBellWaiter() = 0, RemoveBellWaiter() = 0;
  // In place of kHang: `take` runs on the service thread, for what comes from here on. It must not block.
  virtual void SetHangHandler(std::function<void(HangNotice)> take) = 0;
  // Next work for the language layer; waits like Wait().
  virtual absl::StatusOr<RuntimeTask> NextTask(absl::Duration timeout) = 0;

  // --- actors of this process ---
  // A mailbox for an actor made here by other means than a create message (a C++ actor, this_proc().spawn).
  // AlreadyExists. `owner` gets its failures; description for tree and reports.
  struct ActorInfo {
    std::string name, actor_class, mesh;
    uint32_t rank = 0;
    Shape shape;  // of the mesh as spawned
    ActorAddress owner;
    std::string owner_label;
    int64_t hung_after_ms = 0;                  // in one handler for longer, it is told to hang; 0: never
    int64_t incarnation = 1;                    // of its mesh when it was made
    std::optional<MeshRestarts> restarts = {};  // of what it supervises
  };
  virtual absl::StatusOr<std::shared_ptr<Inbox>> AddActor(uint64_t actor, const ActorInfo& info) = 0;
  virtual void ShowRestarts(uint64_t actor, const MeshRestarts& restarts) = 0;
  virtual uint64_t NextActorId() = 0;
  // The mailbox of kRootActor: failures that nobody below handled. In a client only; null in a worker.
  virtual std::shared_ptr<Inbox> root_mailbox() = 0;
  // The calling thread runs this actor from now on (its wait word is the actor's).
  virtual void BindActor(uint64_t actor) = 0;
  // The calling thread sleeps next for all actors that no thread is bound to (the leader of a pool of
  // threads): messages for them ring its wait word. To be called before each WaitNotifier of whoever leads
  // then.
  virtual void BindPool() = 0;
  // Says what the calling thread's actor is in, for reports of deadlocks; called when it waits for long.
  virtual void SetEndpointNamer(std::function<std::string()> namer) = 0;
  // For who looks from outside: the thread's actor is in `method` since then (CLOCK_MONOTONIC; 0: idle).
  virtual void SetActivity(std::string_view method, int64_t began_ns) = 0;
  virtual void InterpreterCame() = 0;  // answers kAskInterpreter
  // The actor is over: its mailbox closes, queued and later calls get kFailure with `event` (whose address,
  // mesh, rank, class, host and pid are filled in here), the owner is told unless it is a stop, and so is the
  // daemon. Meshes that it owned are forgotten (the layer stops them before).
  virtual void EndActor(uint64_t actor, FailureEvent event) = 0;
  // Answers a call (or create, or stop) message, if it asked for an answer.
  virtual absl::Status Reply(const Message& request, FrameKind kind, const Outgoing& answer) = 0;

  // --- sending ---
  // Room for `answers` answers to one or more sends by `caller`, an actor of this process. After `timeout`
  // the call is given up, as by CancelCall, and a kCancel takes the place of each answer that is missing.
  virtual std::shared_ptr<Inbox> OpenCall(uint64_t caller, size_t answers,
                                          absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Sends to each target, in order; the payload is written once. Without `call` no answer is asked for; for a
  // call that was given up nothing is sent. A target that cannot be reached answers with kFailure at once:
  // the status is about the whole (ResourceExhausted: too large, or no room within send_wait_ms; Cancelled: a
  // signal came before anything was sent).
  virtual absl::Status Send(uint64_t sender, FrameKind kind, absl::Span<const CallTarget> targets,
                            const Outgoing& payload, Inbox* call) = 0;
  // Puts an answer in place of `rank`'s (a spawn that failed before anything was sent).
  virtual void FailCall(Inbox& call, uint32_t rank, const FailureEvent& event) = 0;
  // Nobody wants the answers any more. The callees go on.
  virtual void CloseInbox(Inbox& inbox) = 0;
  // The same, and those who have not answered hear of it: a call that is queued is dropped, the endpoint of
  // one that runs can see it (Inbox::IsCancelled). Whoever waits for the call wakes.
  virtual void CancelCall(Inbox& call) = 0;

  // A port of `owner`: gets kPortMessage and kException until closed. A call message's port_id is one too.
  virtual std::shared_ptr<Inbox> OpenPort(uint64_t owner) = 0;
  virtual absl::Status SendToPort(uint64_t sender, const ActorAddress& receiver, uint64_t port_id,
                                  uint32_t rank, FrameKind kind, const Outgoing& payload) = 0;

  // --- supervision ---
  // From now on the death of a proc of the mesh puts one kActorFailed message for each rank on it into the
  // owner's mailbox; if a proc is dead already, at once.
  virtual void AddOwnedMesh(const OwnedMesh& mesh) = 0;
  virtual void RemoveOwnedMesh(uint64_t owner, uint64_t actor, const std::string& mesh) = 0;
  // The same for a mesh of procs, whose name another may have too.
  virtual void RemoveOwnedProcMesh(uint64_t owner, const std::vector<ProcAddress>& procs) = 0;
  // The event of a proc known to be dead. NotFound: not known to be dead. More becomes known a little later
  // (see WithDetail): for that it waits at most `timeout`.
  virtual absl::StatusOr<FailureEvent> DeathOf(const ProcAddress& proc,
                                               absl::Duration timeout = absl::ZeroDuration()) = 0;

  struct Stats {
    uint64_t frames_sent = 0, frames_received = 0, ring_links = 0, relay_links = 0;
    uint64_t futex_wakes = 0, futex_waits = 0, bell_writes = 0, segment_bytes = 0;
    // Pairs of actors with numbers: to actors of other processes, and from them.
    uint64_t pairs_to = 0, pairs_from = 0;
  };
  virtual Stats stats() const = 0;
};

}  // namespace monarch
