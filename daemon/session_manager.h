#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "daemon/daemon_context.h"
#include "daemon/native_connection.h"
#include "daemon/peer_listener.h"
#include "daemon/session.h"
#include "daemon/unix_listener.h"

namespace monarch {

// The sessions of this host, and the native connections that have not said hello yet.
// Threading: confined to the control loop.
class SessionManager : private NativeConnection::Handler {
 public:
  using OpenControl = std::function<absl::Status(ScopedFd socket, const std::string& owner)>;
  // `open_control` as Session's; `session_gone` after each end.
  SessionManager(DaemonContext* context, OpenControl open_control, std::function<void()> session_gone);
  ~SessionManager() override;

  // A client to be, of which the kernel says who it is. With `patient` there is no deadline for its hello.
  void AddPeer(ScopedFd socket, const PeerCredentials& peer, bool patient);
  // A connection of another daemon, whose user is this one's or root.
  void AddHost(PeerListener::Connection connection);
  // One that another daemon had begun in this run directory.
  void AddAdopted(AdoptedSession adopted);
  // Null: no such session (any more).
  Session* Find(const SessionId& id);
  const std::map<SessionId, std::unique_ptr<Session>>& sessions() const { return sessions_; }
  // Ends one. NotFound; else the reply comes when nothing is left of it, with the ends of those of its
  // processes here that live now.
  void Stop(const SessionId& id, const std::string& reason, absl::Duration kill_after,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<FailureEvent>>)> reply);
  // Ends all; `session_gone` tells of each. New ones are refused from now on.
  void EndAll(const std::string& reason);

 private:
  static constexpr absl::Duration kHelloMax = absl::Seconds(10);

  struct Pending {
    std::shared_ptr<NativeConnection> connection;
    PeerCredentials peer;
    ScopedFd pidfd;
    EventLoop::TimerId timer = 0;
  };

  struct Stopping {
    std::vector<ProcAddress> procs;
    absl::AnyInvocable<void(absl::StatusOr<std::vector<FailureEvent>>)> reply;
  };

  absl::Status OnPacket(NativeConnection& connection, Packet packet) override;
  void OnClosed(NativeConnection& connection, const absl::Status& why) override;
  absl::Status OnHello(Pending* pending, const ControlMessage& message, std::vector<ScopedFd> fds);
  absl::Status OnReturn(Pending* pending, const ControlMessage& message);
  Pending TakePending(uint64_t key);
  absl::Status CheckRoom() const;
  absl::Status OnSessionOfHost(PeerListener::Connection& connection);
  absl::Status OnControlOfHost(PeerListener::Connection& connection, bool reversed);
  absl::Status AnswerHost(PeerListener::Connection& connection, Value::Map more);
  void OnSessionGone(Session* gone);
  // Keeps the workers' logs of the sessions that ended last, for whoever asks why.
  void KeepLog(std::string path);

  // Constant after construction.
  DaemonContext* const context_;
  const OpenControl open_control_;
  const std::function<void()> session_gone_;

  // Confined to the loop.
  std::map<uint64_t, Pending> pending_;  // by the connection's `proc`, which names none yet
  uint64_t next_pending_ = 1;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  std::multimap<SessionId, Stopping> stopping_;
  std::deque<std::string> logs_;
  std::string closing_;
};

}  // namespace monarch
