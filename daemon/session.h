#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/actor_list.h"
#include "daemon/adoption.h"
#include "daemon/daemon_context.h"
#include "daemon/hang_watch.h"
#include "daemon/introducer.h"
#include "daemon/launcher_link.h"
#include "daemon/native_connection.h"
#include "daemon/proc_table.h"
#include "daemon/relay.h"
#include "daemon/session_hosts.h"
#include "daemon/session_keeper.h"
#include "daemon/session_types.h"
#include "daemon/spawner.h"
#include "daemon/spread_spawns.h"
#include "daemon/stopper.h"

namespace monarch {

// Everything one client owns on this host: its processes, their introductions, launches, stops and deaths.
// It ends with its client's process (the pidfd's word; an end of the socket alone means nothing, since a
// forked child may hold it, and it may be held by one), or by goodbye. INV-session-alone: nothing of one
// session reaches another: peers, frames and control requests are looked up here. Threading: confined to the
// control loop.
class Session : public NativeConnection::Handler,
                public LauncherLink::Events,
                public Spawner::Host,
                public Stopper::Host,
                public SessionHosts::Local,
                public SpreadSpawns::Hosts {
 public:
  using Client = SessionClient;
  using Home = SessionHome;
  using OpenControl = absl::AnyInvocable<absl::Status(ScopedFd socket, const std::string& owner)>;

  // `open_control` serves the control plane on a socket, which counts as `owner`'s. `gone` comes once,
  // posted: nothing of the session is left.
  Session(DaemonContext* context, Client client, OpenControl open_control,
          absl::AnyInvocable<void(Session*)> gone);
  // A part of a session whose client is on another host, over the connection to its daemon.
  Session(DaemonContext* context, Home home, std::unique_ptr<PacketStream> stream, OpenControl open_control,
          absl::AnyInvocable<void(Session*)> gone);
  // One that another daemon had begun here.
  Session(DaemonContext* context, AdoptedSession adopted, OpenControl open_control,
          absl::AnyInvocable<void(Session*)> gone);
  ~Session() override;

  // --- requests of the control plane ---
  void Spawn(SpawnRequest request, const ProcAddress& asker, Spawner::Reply reply);
  void Stop(const StopRequest& request, Stopper::Reply reply);
  void Signal(const std::vector<ProcAddress>& procs, int signal,
              absl::AnyInvocable<void(absl::Status)> reply);
  void AttachHost(const std::string& address, absl::Duration timeout,
                  absl::AnyInvocable<void(absl::StatusOr<AttachedHost>)> reply);
  void ShutdownHost(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                    absl::AnyInvocable<void(absl::Status)> reply);
  // A process of the session is back, on a new connection. Not OK: it has none here, and is to be told so.
  absl::Status Resume(const ControlMessage& hello, pid_t pid, std::shared_ptr<NativeConnection> connection);
  // Ends everything; idempotent. `kill_after`: what its processes have; zero: session_end_kill_ms.
  void End(const std::string& reason, absl::Duration kill_after = absl::ZeroDuration());

  // --- for listings ---
  const SessionId& id() const { return id_; }
  uid_t uid() const { return client_.uid; }
  pid_t client_pid() const { return client_.pid; }
  const std::string& name() const { return client_.name; }
  bool is_ending() const { return state_ != SessionState::kRunning; }
  absl::Duration started() const { return started_; }
  std::string log_path() const;                        // of its workers' output; there once it has spawned
  size_t host_count() const { return hosts_.size(); }  // others that it is on
  pid_t launcher_pid() const { return launcher_ ? launcher_->pid() : 0; }
  const ProcTable& procs() const { return procs_; }
  std::vector<ProcDescription> RemoteProcs() const;
  // What the home's further connections prove themselves with.
  const StartToken& ticket() const { return ticket_; }
  bool is_guest() const { return is_guest_; }
  // Serves the control plane on it, or uses the home's.
  absl::StatusOr<ControlPass> OpenControlFor(ScopedFd socket, const StartToken& ticket) override;
  SessionHosts& hosts() { return hosts_; }
  const ProcAddress& client_address() const { return client_address_; }
  const std::map<ActorAddress, ActorRecord>& actors() const { return actors_.all(); }
  const HangWatch& hangs() const { return hangs_; }

 private:
  // What both kinds begin with.
  Session(DaemonContext* context, const SessionIdentity& identity, OpenControl open_control,
          absl::AnyInvocable<void(Session*)> gone);

  // Of the base classes, in their order.
  absl::Status OnPacket(NativeConnection& connection, Packet packet) override;
  void OnClosed(NativeConnection& connection, const absl::Status& why) override;
  void OnFramesSent(NativeConnection& connection) override;
  void OnLaunched(uint64_t proc, int64_t pid) override;
  void OnLaunchFailed(uint64_t proc, const std::string& step, const std::string& message) override;
  void OnDying(uint64_t proc, const ProcExit& exit) override;
  void OnExited(uint64_t proc, const ProcExit& exit) override;
  void OnLauncherGone() override;
  absl::StatusOr<ProcDescription> StartProc(const SpawnRequest& request, size_t index) override;
  void KillProc(uint64_t proc) override;
  void OnSpawned(const SpawnRequest& request, const std::vector<ProcDescription>& procs) override;
  void OnStopping(ProcRecord& record) override;
  void SendStop(ProcRecord& record, absl::Duration grace) override;
  void SendSignal(ProcRecord& record, int signal) override;
  void OnRemoteConnect(const ProcAddress& asker, const ProcAddress& proc) override;
  void DeliverFrame(RelayFrame frame) override;
  void TellLocal(const ProcAddress& to, const ControlMessage& message) override;
  void OnRemoteEnd(ControlType type, const ProcAddress& proc, const FailureEvent& event) override;
  void OnRemoteHang(const HangNotice& notice) override;
  void OnHomeGone(const std::string& why) override;
  void OnHostsEnded() override;
  void SpawnOn(const HostId& host, SpawnRequest request, SpreadSpawns::Reply reply) override;
  void KillSpawned(const std::vector<ProcAddress>& procs, absl::AnyInvocable<void()> done) override;

  absl::Status OnControl(ProcRecord& record, const ControlMessage& message, std::vector<ScopedFd> fds);
  absl::Status OnWorkerHello(ProcRecord& record, const ControlMessage& message, std::vector<ScopedFd> fds);
  void Welcome(ProcRecord& record, uint32_t request);
  void AdoptProcs(AdoptedSession* adopted);
  void AdoptActors(const SessionBook& book);
  void TellWhatItMissed(ProcRecord& record);
  absl::Status OnConnect(ProcRecord& record, const ControlMessage& message);
  absl::Status WaitFor(const ProcRecord& peer, ProcRecord& asker, uint32_t request);
  void Introduce(ProcRecord& asker, uint32_t request, ProcRecord& peer);
  void SendIntroduction(ProcRecord& to, uint32_t request, const ProcRecord& peer,
                        const Introducer::Introduction& how, bool to_is_a, int side, int ring_fd);
  void SendUnreachable(ProcRecord& to, uint32_t request, const ProcAddress& peer);
  void AnswerWaiting(ProcRecord& peer);
  absl::Status SendToHost(ProcRecord& record, const FrameHeader& header, std::string packet);
  bool IsLocal(const std::vector<ProcAddress>& procs) const;
  void SpawnHere(SpawnRequest request, Spawner::Reply reply);
  void StopHere(const StopRequest& request, Stopper::Reply reply);
  absl::Status SignalHere(const std::vector<ProcAddress>& procs, int signal);
  void OnGoodbye(const ControlMessage& message);
  absl::Status OnActorUp(ProcRecord& record, const Value& body);
  absl::Status OnActorDown(ProcRecord& record, const Value& body);
  void OnHang(const ActorAddress& actor, const Hang& hang, absl::Duration began);
  absl::Status OnFrame(ProcRecord& record, std::string packet);
  void ResumeSenders(const ProcRecord& receiver, size_t waiting_bytes);

  absl::Status RoomFor(int64_t procs, RequestError* error) const;
  absl::Status EnsureLauncher();
  void FillEnd(const ProcRecord& record, const ProcExit& exit, FailureEvent* event) const;
  void Die(uint64_t proc, const ProcExit& exit);
  void Bury(uint64_t proc, const FailureEvent& event);
  void OwnerDied(const ProcAddress& owner, const std::string& what);
  FailureEvent BaseEvent(const ProcRecord& record) const;
  FailureEvent EndOf(const ProcAddress& proc) const;
  void Broadcast(ControlType type, const ProcAddress& peer, const FailureEvent& event);
  void TellAll(ControlType type, const ProcAddress& peer, const FailureEvent& event);
  void WatchClient(), Rearm(), OnTimer(), AfterSweep(), MaybeFinishEnd(), FinishEnd();

  // Constant after construction.
  DaemonContext* const context_;
  const SessionId id_;
  // By which its processes are found; on a guest another, for two hosts of a session may be one machine.
  const SessionId mark_;
  const absl::Duration started_;
  const ProcAddress client_address_;
  const std::shared_ptr<bool> alive_;
  const bool is_guest_;
  const StartToken ticket_;

  // Confined to the loop.
  Client client_;
  OpenControl open_control_;
  absl::AnyInvocable<void(Session*)> gone_;
  SessionState state_ = SessionState::kRunning;
  std::string end_reason_;
  std::optional<uint32_t> goodbye_;
  bool sweeping_ = false, ended_here_ = false, hosts_ended_ = false;
  std::vector<absl::AnyInvocable<void()>> after_sweep_;
  ProcTable procs_;
  Introducer introducer_;
  RelayPauses pauses_;
  std::multimap<uint64_t, std::pair<uint64_t, uint32_t>> waiting_;  // peer -> (asker, request)
  std::multimap<uint64_t, ProcAddress> remote_waiting_;             // peer -> asker on another host
  ActorList actors_;
  HangWatch hangs_;
  std::unique_ptr<LauncherLink> launcher_;
  Spawner spawner_;
  Stopper stopper_;
  SessionKeeper keeper_;
  SessionHosts hosts_;
  SpreadSpawns spread_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace monarch
