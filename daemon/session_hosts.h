#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "daemon/daemon_context.h"
#include "daemon/host_control.h"
#include "daemon/host_dialer.h"
#include "daemon/peer_link.h"
#include "daemon/process_types.h"
#include "daemon/relay.h"
#include "message/hang_notice.h"

namespace monarch {

struct AttachedHost {
  HostId host;
  std::string name;
  std::string address;
};

// The other hosts of one session: links, routes, requests. At its home the session has a link to each host
// that it attached; there it has one, to its home, which passes on what is for a third host.
// Threading: confined to the control loop.
class SessionHosts : public PeerLink::Events {
 public:
  // What it needs of the session's part on this host.
  class Local {
   public:
    virtual ~Local() = default;
    // Serves requests of the other daemon, which name the ticket, as the client's, while the pass is kept.
    virtual absl::StatusOr<ControlPass> OpenControlFor(ScopedFd socket, const StartToken& ticket) = 0;
    // `asker`, on another host, wants to be introduced to `proc`, of this one.
    virtual void OnRemoteConnect(const ProcAddress& asker, const ProcAddress& proc) = 0;
    virtual void DeliverFrame(RelayFrame frame) = 0;
    // For a process of this host.
    virtual void TellLocal(const ProcAddress& to, const ControlMessage& message) = 0;
    // kProcDead or kProcDetail of a process of another host.
    virtual void OnRemoteEnd(ControlType type, const ProcAddress& proc, const FailureEvent& event) = 0;
    // Of an actor on another host; its owner is told by others.
    virtual void OnRemoteHang(const HangNotice& notice) = 0;
    // Only where the session is a guest: its home has gone, or wants it to end.
    virtual void OnHomeGone(const std::string& why) = 0;
    // All that EndAll waited for is over.
    virtual void OnHostsEnded() = 0;
  };
  struct Hello {  // of the home, to others
    ProcAddress client;
    int64_t client_pid = 0;
    std::string client_name;
  };

  SessionHosts(DaemonContext* context, const SessionId& session, Local* local)
      : context_(context), session_(session), local_(local) {}
  ~SessionHosts() override;

  // Makes this a guest of that home.
  void SetHome(const AttachedHost& home, const StartToken& ticket, std::unique_ptr<PacketStream> stream);
  void SetHomeControl(ScopedFd socket);
  absl::Status ServeHome(ScopedFd socket);
  // Idempotent for an address.
  void Attach(const Hello& hello, const std::string& address, absl::Duration timeout,
              absl::AnyInvocable<void(absl::StatusOr<AttachedHost>)> reply);

  // Of a guest; zero: lost.
  HostId home() const { return hosts_.empty() ? HostId() : hosts_.begin()->first; }
  size_t size() const { return hosts_.size(); }
  // Whether there is a way to that host.
  bool Reaches(const HostId& host) const { return Route(host) != nullptr; }
  void Connect(const ProcAddress& asker, const ProcAddress& proc);
  // Not OK: not sent, the frame is as before. True: its sender is to pause.
  absl::StatusOr<bool> SendFrame(RelayFrame& frame);
  // A message for a process anywhere.
  void Tell(const ProcAddress& to, const ControlMessage& message);
  // Of an actor of this host: to its owner, and, for its log, to the home.
  void TellHang(const HangNotice& notice);
  void TellProcUp(const ProcDescription& proc, const ActorAddress& owner);
  // To all hosts, of a process of this one.
  void Broadcast(ControlType type, const ProcAddress& proc, const FailureEvent& event);

  // Null: no connection for requests to that host. Not to be kept.
  HostControl* ControlOf(const HostId& host) const;
  void Shutdown(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                absl::AnyInvocable<void(absl::Status)> reply);
  // Of a host that is gone, for who asks.
  FailureEvent Unreachable(const ProcAddress& proc) const;
  void AddProc(const ProcDescription& proc);
  void List(std::vector<ProcDescription>* procs) const;

  // Home: asks all hosts to end their parts; OnHostsEnded follows, possibly in this call. Guest: tells the
  // home that this host leaves.
  void EndAll(const std::string& reason);
  // Guest: nothing is left here.
  void TellGone();

 private:
  struct Remote {
    AttachedHost host;
    StartToken ticket;
    ControlPass pass;  // for its requests
    std::unique_ptr<PeerLink> link;
    std::unique_ptr<HostControl> control;
    RelayPauses pauses{0};
    std::map<ProcAddress, ProcDescription> procs;
    bool leaving = false;  // it was asked to
  };
  struct Attaching {
    std::unique_ptr<HostDialer> dialer;
    std::unique_ptr<Remote> remote;
    absl::Duration deadline;
    std::vector<absl::AnyInvocable<void(absl::StatusOr<AttachedHost>)>> replies;
  };

  absl::Status OnLinkControl(PeerLink& link, const ControlMessage& message) override;
  absl::Status OnLinkFrame(PeerLink& link, RelayFrame frame) override;
  void OnLinkLost(PeerLink& link, const absl::Status& why) override;
  void OnLinkRoom(PeerLink& link) override;

  absl::Status OnEnd(Remote& from, const ControlMessage& message);
  absl::Status OnToProc(Remote& from, const ControlMessage& message);
  absl::Status OnHang(const Remote& from, const ControlMessage& message);
  absl::Status OnProcUp(Remote& from, const ControlMessage& message);
  Remote* Route(const HostId& host) const;
  Remote& OwnerOf(const PeerLink& link) const;
  void Dial(const std::string& address, ControlMessage hello,
            absl::AnyInvocable<absl::Status(Attaching&, DialedHost)> next);
  absl::Status OnSessionWelcome(Attaching& attaching, DialedHost dialed, const std::string& address);
  void FinishAttach(const std::string& address, const absl::Status& status);
  void Lose(Remote& remote, const std::string& why);

  // Constant after construction.
  DaemonContext* const context_;
  const SessionId session_;
  Local* const local_;

  // Confined to the loop.
  bool is_guest_ = false;
  bool ending_ = false;
  std::map<HostId, std::unique_ptr<Remote>> hosts_;
  std::map<std::string, Attaching> attaching_;
  std::map<HostId, std::string> lost_;  // why
  std::map<HostId, AttachedHost> known_;
};

}  // namespace monarch
