#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/event_loop.h"
#include "client/cpp/runtime/actor_table.h"
#include "client/cpp/runtime/call_table.h"
#include "client/cpp/runtime/daemon_link.h"
#include "client/cpp/runtime/daemon_return.h"
#include "client/cpp/runtime/dead_procs.h"
#include "client/cpp/runtime/deadlock_watch.h"
#include "client/cpp/runtime/fork_guard.h"
#include "client/cpp/runtime/handshake.h"
#include "client/cpp/runtime/owned_meshes.h"
#include "client/cpp/runtime/payload_block.h"
#include "client/cpp/runtime/peer_table.h"
#include "client/cpp/runtime/prepared_payload.h"
#include "client/cpp/runtime/runtime.h"
#include "client/cpp/runtime/service_thread.h"
#include "client/cpp/runtime/wait_words.h"
#include "message/sequencer.h"

namespace monarch {

// Lock order: drain_mu_, then a Peer's, then a table's, then an Inbox's. None is held while user code runs.
// Threading: as Runtime. The methods under "service thread" run there only.
class RuntimeImpl : public Runtime {
 public:
  // `service` is idle so far; it runs this runtime's loop from here on.
  static std::unique_ptr<Runtime> Create(Connection connection, std::unique_ptr<ServiceThread> service,
                                         const Limits& limits);
  ~RuntimeImpl() override;

  ProcAddress self() const override { return self_; }
  SessionId session() const override { return session_; }
  StartToken control_token() const override { return control_token_; }
  std::string host_name() const override { return host_name_; }
  std::string boot() const override { return boot_; }
  const Limits& limits() const override { return limits_; }
  absl::Status SendReady() override;
  absl::StatusOr<ScopedFd> OpenControl() override;
  absl::Status Goodbye(absl::Duration timeout, absl::Duration grace) override;

  absl::Status Wait(Inbox& inbox, absl::Duration timeout) override;
  absl::Status WaitNotifier(Notifier& notifier, int epoll_fd, absl::Duration timeout) override;
  void WakeNotifier(Notifier& notifier) override;
  std::shared_ptr<Notifier> MakeNotifier() override;
  void SetHangHandler(std::function<void(HangNotice)> take) override;
  void AddBellWaiter() override, RemoveBellWaiter() override;
  absl::StatusOr<RuntimeTask> NextTask(absl::Duration timeout) override;
  absl::StatusOr<std::shared_ptr<Inbox>> AddActor(uint64_t actor, const ActorInfo& info) override;
  void ShowRestarts(uint64_t actor, const MeshRestarts& restarts) override;
  uint64_t NextActorId() override;
  std::shared_ptr<Inbox> root_mailbox() override { return actors_.Mailbox(kRootActor); }
  void BindActor(uint64_t actor) override;
  void BindPool() override;
  void SetActivity(std::string_view method, int64_t began_ns) override;
  void InterpreterCame() override { doorbell_->SetInterpreterAsked(0); }
  void EndActor(uint64_t actor, FailureEvent event) override;
  void SetEndpointNamer(std::function<std::string()> namer) override { deadlocks_.SetEndpointNamer(namer); }
  absl::Status Reply(const Message& request, FrameKind kind, const Outgoing& answer) override;

  std::shared_ptr<Inbox> OpenCall(uint64_t caller, size_t answers, absl::Duration timeout) override;
  absl::Status Send(uint64_t sender, FrameKind kind, absl::Span<const CallTarget> targets,
                    const Outgoing& payload, Inbox* call) override;
  void FailCall(Inbox& call, uint32_t rank, const FailureEvent& event) override;
  void CloseInbox(Inbox& inbox) override;
  void CancelCall(Inbox& call) override;
  std::shared_ptr<Inbox> OpenPort(uint64_t owner) override;
  absl::Status SendToPort(uint64_t sender, const ActorAddress& receiver, uint64_t port_id, uint32_t rank,
                          FrameKind kind, const Outgoing& payload) override;

  void AddOwnedMesh(const OwnedMesh& mesh) override;
  void RemoveOwnedMesh(uint64_t owner, uint64_t actor, const std::string& mesh) override;
  void RemoveOwnedProcMesh(uint64_t owner, const std::vector<ProcAddress>& procs) override;
  absl::StatusOr<FailureEvent> DeathOf(const ProcAddress& proc, absl::Duration timeout) override;
  Stats stats() const override;

 private:
  RuntimeImpl(Connection connection, std::unique_ptr<ServiceThread> service, const Limits& limits);
  FrameHeader HeaderTo(FrameKind kind, uint64_t sender, const ActorAddress& receiver) const;
  FrameHeader AnswerTo(const FrameHeader& request, FrameKind kind) const;
  FailureEvent DaemonEnded(const ActorAddress& actor) const;
  // A request to the daemon that is answered with ok; Ask: of this one or the next.
  absl::Status AskOnce(ControlMessage request, absl::Span<const int> fds, absl::Duration timeout);
  absl::Status Ask(ControlMessage request, absl::Span<const int> fds, absl::Duration timeout);
  // sending.cc
  absl::StatusOr<PreparedPayload> Prepare(const Outgoing& payload, size_t remote_targets, Patience patience);
  // OK: sent. NotFound: the receiver is gone (`event` says why). Else no room in time; Cancelled by a signal.
  absl::Status SendOne(FrameHeader header, const PreparedPayload& prepared, const Outgoing& payload,
                       Patience patience, FailureEvent* event);
  absl::Status SendRemote(const FrameHeader& header, const PreparedPayload& prepared, Patience patience,
                          FailureEvent* event);
  absl::Status SendLocal(FrameHeader header, const Outgoing& payload, Patience patience);
  absl::StatusOr<std::shared_ptr<Peer>> PeerFor(const ProcAddress& proc, FailureEvent* event);
  absl::Status SleepForRoom(absl::FunctionRef<bool()> ready, Patience patience);
  // The runtime's own messages never wait, and may go with their receiver. False: no room in the segment.
  bool SendQuietly(FrameHeader header, std::string_view meta, absl::Span<const uint8_t> part = {});
  void SendEvent(const FrameHeader& header, const FailureEvent& event);
  void SendFailure(const FrameHeader& request, const FailureEvent& event);
  void SendCancels(uint64_t call, uint64_t caller, absl::Span<const CallTarget> targets);

  // receiving.cc
  // On a thread that sleeps on `own_word`: brings what has arrived into the inboxes and wakes the others.
  void Drain(uint32_t own_word);
  void DrainRings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_);
  void FindDead(std::vector<FailureEvent>* deaths) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_);
  void DrainRing(uint32_t bit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_);
  absl::Status Accept(const std::shared_ptr<Peer>& peer, Frame frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_);
  void ReceiveFrame(const std::shared_ptr<Peer>& peer, Frame frame);
  absl::StatusOr<Message> ToMessage(const std::shared_ptr<Peer>& peer, Frame frame);
  void Deliver(Message message);
  void DeliverToActor(Message message);
  void DeliverToProc(const std::shared_ptr<Peer>& peer, Message message);
  void CreateActor(Message message);
  void ReleaseBlocks(Peer* peer, const Message& message);
  void WakeForSegment();
  void AnswerEmpty(const FrameHeader& request);
  void TellPause(const Inbox& inbox, const FrameHeader& cause);
  void TellResume(uint64_t actor, const std::vector<ProcAddress>& procs);
  void TellEnded(uint64_t actor, const ProcAddress& proc);

  // service thread (service_messages.cc)
  void StartService(), OnNative(), OnNativeWritable(), OnBell(), OnLauncher();
  void OnPacket(Packet packet);
  void OnControl(ControlMessage message, std::vector<ScopedFd> fds);
  void OnIntroduce(const ControlMessage& message, std::vector<ScopedFd> fds);
  absl::Status Introduce(const std::shared_ptr<Peer>& peer, const Value& body, std::vector<ScopedFd> fds);
  void OnRelayedFrame(const Packet& packet);
  void OnUndelivered(const Value&body), OnStop(const Value&body);
  void WatchDaemon(), LoseRelayed(), OnDaemonReturned(PacketSocket socket);
  void OnDaemonEnded(const std::string&why, bool may_return), EndDaemon(const std::string&why);
  void WantWrite();
  void ReleaseSoon(bool at_once), SendReleases();
  void EndLateCalls();
  void StopProcess(const std::string& reason, absl::Duration grace, bool session_ends);
  void AddTask(RuntimeTask task);

  // supervision.cc
  void OnProcDead(const ProcAddress& proc, const FailureEvent& event);
  void BreakLink(const std::shared_ptr<Peer>& peer, const absl::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_);
  void DropPeer(const std::shared_ptr<Peer>& peer, const FailureEvent& event);
  void StopOrphans(const ProcAddress& proc);
  void ReportToOwners(const std::vector<OwnedMeshes::Report>& reports);
  void TellOwner(const ActorInfo& info, const FailureEvent& event);
  void TellActorUp(uint64_t actor, const ActorInfo& info);
  FailureEvent EventFor(const FailureEvent& cause, const ActorAddress& actor);
  void FailCallsTo(const ProcAddress* proc, const FailureEvent& event);
  void AnswerLeftOver(std::list<Message> left, const FailureEvent& event);

  const ForkGuard fork_;
  const Limits limits_;
  const ProcAddress self_;
  const SessionId session_;
  const StartToken control_token_;
  const std::string host_name_, boot_;
  const bool is_client_;
  const std::shared_ptr<Doorbell> doorbell_;
  const std::shared_ptr<Segment> segment_;
  PacketSocket launcher_;         // service thread
  ClientProcess private_daemon_;  // reaped at the end
  std::atomic<uint64_t> frames_sent_{0}, frames_received_{0}, ring_links_{0}, relay_links_{0};
  std::atomic<uint64_t> blocked_peers_{0}, next_actor_;
  std::atomic<bool> write_wanted_{false}, daemon_ended_{false}, goodbye_said_{false}, daemon_away_{false};
  std::unique_ptr<ServiceThread> service_;  // constant until the end
  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<WaitWords> words_;
  const std::shared_ptr<ReleaseQueue> releases_;
  DaemonLink daemon_;
  DaemonReturn return_;  // service thread
  PeerTable peers_;
  ActorTable actors_;
  CallTable calls_;
  EventLoop::TimerId late_calls_timer_ = 0;                        // service thread
  std::atomic<int64_t> late_calls_at_ns_{CallTable::kNoDeadline};  // for when that is set
  DeadProcs dead_;
  DeadlockWatch deadlocks_;
  mutable Mutex drain_mu_;
  Sequencer sequencer_ ABSL_GUARDED_BY(drain_mu_);
  std::array<std::shared_ptr<Peer>, kRingBits> ring_peers_ ABSL_GUARDED_BY(drain_mu_);
  Mutex mu_;
  OwnedMeshes owned_ ABSL_GUARDED_BY(mu_);
  std::deque<RuntimeTask> tasks_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> task_words_ ABSL_GUARDED_BY(mu_);     // who waits for tasks
  std::vector<uint32_t> segment_words_ ABSL_GUARDED_BY(mu_);  // who waits for blocks to come back
  std::vector<uint32_t> answer_words_ ABSL_GUARDED_BY(mu_);   // who waits for the daemon's answers
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void(HangNotice)> take_hang_ ABSL_GUARDED_BY(mu_);
};

}  // namespace monarch
