#include "daemon/session_hosts.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "daemon/protocol.h"

namespace monarch {
namespace {

Value::Map EndBody(const ProcAddress& proc, const FailureEvent& event) {
  return {{"peer", ToValue(proc)}, {"event", ToValue(event)}};
}

// What one host's daemon may have told to a process of another.
bool MayTravel(ControlType type) {
  switch (type) {
    case ControlType::kIntroduce:
    case ControlType::kUnreachable:
    case ControlType::kUndelivered:
    case ControlType::kRelayPause:
    case ControlType::kRelayResume:
    case ControlType::kHung:
      return true;
    default:
      return false;
  }
}

}  // namespace

SessionHosts::~SessionHosts() {
  for (auto& [id, remote] : hosts_) remote->link->Close();
}

SessionHosts::Remote* SessionHosts::Route(const HostId& host) const {
  const auto found = hosts_.find(host);
  if (found != hosts_.end()) return found->second.get();
  return is_guest_ && !hosts_.empty() && host != context_->host ? hosts_.begin()->second.get() : nullptr;
}

SessionHosts::Remote& SessionHosts::OwnerOf(const PeerLink& link) const {
  for (const auto& [id, remote] : hosts_) {
    if (remote->link.get() == &link) return *remote;
  }
  MONARCH_CHECK(false);
  std::abort();
}

void SessionHosts::SetHome(const AttachedHost& home, const StartToken& ticket,
                           std::unique_ptr<PacketStream> stream) {
  is_guest_ = true;
  auto remote = std::make_unique<Remote>();
  remote->host = home;
  remote->ticket = ticket;
  remote->pauses = RelayPauses(static_cast<size_t>(context_->limits.relay_pause_bytes));
  remote->link = std::make_unique<PeerLink>(context_->loop, std::move(stream),
                                            absl::Milliseconds(context_->limits.remote_lease_ms),
                                            context_->limits, this);
  hosts_.emplace(home.host, std::move(remote));
}

void SessionHosts::SetHomeControl(ScopedFd socket) {
  if (hosts_.empty()) return;
  Remote& home = *hosts_.begin()->second;
  home.control = context_->make_host_control(std::move(socket), home.ticket);
}

absl::Status SessionHosts::ServeHome(ScopedFd socket) {
  if (hosts_.empty()) return absl::UnavailableError("the session's home is gone");
  Remote& home = *hosts_.begin()->second;
  MONARCH_ASSIGN_OR_RETURN(home.pass, local_->OpenControlFor(std::move(socket), home.ticket));
  return absl::OkStatus();
}

void SessionHosts::Attach(const Hello& hello, const std::string& address, absl::Duration timeout,
                          absl::AnyInvocable<void(absl::StatusOr<AttachedHost>)> reply) {
  if (is_guest_) {
    return reply(absl::UnimplementedError("attach host: only the client of a session attaches hosts to it"));
  }
  if (ending_) return reply(absl::FailedPreconditionError("attach host: the session is ending"));
  for (const auto& [id, remote] : hosts_) {
    if (remote->host.address == address) return reply(remote->host);
  }
  const auto [entry, is_new] = attaching_.try_emplace(address);
  entry->second.replies.push_back(std::move(reply));
  if (!is_new) return;
  if (static_cast<int64_t>(hosts_.size()) >= context_->limits.peer_hosts_max) {
    return FinishAttach(address, absl::ResourceExhaustedError(absl::StrCat("attach host: peer_hosts_max=",
                                                                           context_->limits.peer_hosts_max)));
  }
  entry->second.deadline = context_->loop->Now() + timeout;
  Dial(address,
       {ControlType::kPeerHello, 1,
        Value::Map{{"protocol", Value(kNativeProtocol)},
                   {"version", Value(kVersion)},
                   {"role", Value("session")},
                   {"session", ToValue(session_)},
                   {"host", ToValue(context_->host)},
                   {"host_name", Value(context_->host_name)},
                   {"client", ToValue(hello.client)},
                   {"client_pid", Value(hello.client_pid)},
                   {"name", Value(hello.client_name)}}},
       [this, address](Attaching& attaching, DialedHost dialed) {
         return OnSessionWelcome(attaching, std::move(dialed), address);
       });
}

void SessionHosts::Dial(const std::string& address, ControlMessage hello,
                        absl::AnyInvocable<absl::Status(Attaching&, DialedHost)> next) {
  const absl::StatusOr<HostAddress> parsed = HostAddress::Parse(address, HostAddress::Side::kDial);
  if (!parsed.ok()) return FinishAttach(address, parsed.status());
  Attaching& attaching = attaching_.at(address);
  attaching.dialer =
      DialHost(context_->loop, *parsed, std::move(hello), attaching.deadline - context_->loop->Now(),
               [this, address, next = std::move(next)](const absl::Status& dialed, DialedHost host) mutable {
                 if (!dialed.ok()) return FinishAttach(address, dialed);
                 // Its callback runs: it must outlive this call.
                 Attaching& entry = attaching_.at(address);
                 context_->loop->Post([done = std::shared_ptr<HostDialer>(std::move(entry.dialer))] {});
                 const absl::Status status = next(entry, std::move(host));
                 if (!status.ok()) FinishAttach(address, status);
               });
}

absl::Status SessionHosts::OnSessionWelcome(Attaching& attaching, DialedHost dialed,
                                            const std::string& address) {
  const Value& body = dialed.welcome;
  auto remote = std::make_unique<Remote>();
  MONARCH_ASSIGN_OR_RETURN(const Id128 id, Id128FromValue(body["host"]));
  remote->host.host = HostId(id);
  MONARCH_ASSIGN_OR_RETURN(remote->host.name, body["host_name"].AsString());
  MONARCH_ASSIGN_OR_RETURN(const Id128 ticket, Id128FromValue(body["ticket"]));
  remote->ticket = StartToken(ticket);
  remote->host.address = address;
  if (remote->host.host == context_->host || hosts_.contains(remote->host.host)) {
    return absl::AlreadyExistsError(absl::StrCat("attach host ", address, ": it is in the session already"));
  }
  remote->pauses = RelayPauses(static_cast<size_t>(context_->limits.relay_pause_bytes));
  remote->link =
      std::make_unique<PeerLink>(context_->loop, std::move(dialed.stream),
                                 absl::Milliseconds(context_->limits.host_dead_ms), context_->limits, this);
  attaching.remote = std::move(remote);
  const auto hello = [&](const char* role) {
    return ControlMessage{ControlType::kPeerHello, 1,
                          Value::Map{{"protocol", Value(kNativeProtocol)},
                                     {"version", Value(kVersion)},
                                     {"role", Value(role)},
                                     {"session", ToValue(session_)},
                                     {"ticket", ToValue(attaching.remote->ticket)}}};
  };
  Dial(address, hello("control"),
       [this, address, upcall = hello("upcall")](Attaching& entry, DialedHost control) {
         entry.remote->control =
             context_->make_host_control(control.stream->ReleaseFd(), entry.remote->ticket);
         Dial(address, upcall, [this, address](Attaching& last, DialedHost back) {
           Remote& remote = *last.remote;
           MONARCH_ASSIGN_OR_RETURN(remote.pass,
                                    local_->OpenControlFor(back.stream->ReleaseFd(), remote.ticket));
           FinishAttach(address, absl::OkStatus());
           return absl::OkStatus();
         });
         return absl::OkStatus();
       });
  return absl::OkStatus();
}

void SessionHosts::FinishAttach(const std::string& address, const absl::Status& status) {
  Attaching attaching = std::move(attaching_.at(address));
  attaching_.erase(address);
  absl::StatusOr<AttachedHost> result = AttachedHost{};
  if (!status.ok()) {
    result = status;
  } else {
    result = attaching.remote->host;
    LogInfo("daemon", "host attached")
        .With("session", session_.ToHex())
        .With("host", result->host.ToHex())
        .With("address", address);
    known_[result->host] = *result;
    hosts_.emplace(result->host, std::move(attaching.remote));
  }
  // They may be what called this, and are not to call again until they are dropped.
  if (attaching.dialer) attaching.dialer->Cancel();
  if (attaching.remote) attaching.remote->link->Close();
  context_->loop->Post([dropped = std::shared_ptr<Remote>(std::move(attaching.remote)),
                        dialer = std::shared_ptr<HostDialer>(std::move(attaching.dialer))] {});
  for (auto& reply : attaching.replies) reply(result);
}

void SessionHosts::Connect(const ProcAddress& asker, const ProcAddress& proc) {
  Route(proc.host)->link->Send(
      {ControlType::kConnect, 0, Value::Map{{"peer", ToValue(proc)}, {"asker", ToValue(asker)}}});
}

absl::StatusOr<bool> SessionHosts::SendFrame(RelayFrame& frame) {
  Remote* remote = Route(frame.header.receiver.proc.host);
  if (remote == nullptr) return absl::UnavailableError("relay frame: there is no way to the receiver's host");
  const ProcAddress receiver = frame.header.receiver.proc;
  const ProcAddress sender = frame.header.sender.proc;
  MONARCH_RETURN_IF_ERROR(remote->link->SendFrame(frame));
  return remote->pauses.OnFrame(receiver, sender, remote->link->waiting_bytes());
}

void SessionHosts::OnLinkRoom(PeerLink& link) {
  Remote& remote = OwnerOf(link);
  for (const auto& [receiver, sender] : remote.pauses.OnSentToAll(link.waiting_bytes())) {
    Tell(sender, {ControlType::kRelayResume, 0, Value::Map{{"peer", ToValue(receiver)}}});
  }
}

void SessionHosts::Tell(const ProcAddress& to, const ControlMessage& message) {
  if (to.host == context_->host) return local_->TellLocal(to, message);
  Remote* remote = Route(to.host);
  if (remote == nullptr) return;
  remote->link->Send(
      {ControlType::kToProc, 0,
       Value::Map{
           {"to", ToValue(to)}, {"type", Value(static_cast<int>(message.type))}, {"body", message.body}}});
}

void SessionHosts::TellProcUp(const ProcDescription& proc, const ActorAddress& owner) {
  if (!is_guest_ || hosts_.empty()) return;
  hosts_.begin()->second->link->Send({ControlType::kProcUp, 0,
                                      Value::Map{{"peer", ToValue(proc.address)},
                                                 {"owner", ToValue(owner)},
                                                 {"rank", Value(proc.rank)},
                                                 {"pid", Value(proc.pid)},
                                                 {"mesh", Value(proc.mesh)},
                                                 {"rank_label", Value(proc.rank_label)}}});
}

void SessionHosts::Broadcast(ControlType type, const ProcAddress& proc, const FailureEvent& event) {
  for (auto& [id, remote] : hosts_) {
    remote->link->SendBehind(proc, {type, 0, Value(EndBody(proc, event))});
  }
}

absl::Status SessionHosts::OnLinkControl(PeerLink& link, const ControlMessage& message) {
  // One of a host that is still being attached has nothing to say yet.
  for (const auto& [address, attaching] : attaching_) {
    if (attaching.remote && attaching.remote->link.get() == &link)
      return absl::InvalidArgumentError("a message before its turn");
  }
  Remote& from = OwnerOf(link);
  switch (message.type) {
    case ControlType::kConnect: {
      MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(message.body["peer"]));
      MONARCH_ASSIGN_OR_RETURN(const ProcAddress asker, ProcAddressFromValue(message.body["asker"]));
      if (asker.host == context_->host) return absl::InvalidArgumentError("connect: the asker is not there");
      if (proc.host == context_->host) {
        local_->OnRemoteConnect(asker, proc);
      } else if (!is_guest_ && Reaches(proc.host)) {
        Connect(asker, proc);
      } else {
        Tell(asker, {ControlType::kUnreachable, 0, Value(EndBody(proc, Unreachable(proc)))});
      }
      return absl::OkStatus();
    }
    case ControlType::kProcDead:
    case ControlType::kProcDetail:
      return OnEnd(from, message);
    case ControlType::kToProc:
      return OnToProc(from, message);
    case ControlType::kProcUp:
      return OnProcUp(from, message);
    case ControlType::kHung:
      return OnHang(from, message);
    case ControlType::kGoodbye: {
      const std::string reason = message.body["reason"].AsString().value_or("no reason given");
      if (is_guest_) {
        from.leaving = true;
        local_->OnHomeGone(reason);
      } else {
        Lose(from, absl::StrCat("its daemon leaves: ", reason));
      }
      return absl::OkStatus();
    }
    case ControlType::kOk:
      if (!ending_) break;
      Lose(from, "the session has ended there");
      return absl::OkStatus();
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected message type ", static_cast<int>(message.type), " of a daemon"));
}

absl::Status SessionHosts::OnEnd(Remote& from, const ControlMessage& message) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(message.body["peer"]));
  MONARCH_ASSIGN_OR_RETURN(const FailureEvent event, FailureEventFromValue(message.body["event"]));
  if (proc.host == context_->host || (!is_guest_ && proc.host != from.host.host)) {
    return absl::PermissionDeniedError("the death of a process of another host");
  }
  from.procs.erase(proc);
  for (auto& [id, remote] : hosts_) {
    if (remote.get() != &from) remote->link->SendBehind(proc, message);
  }
  local_->OnRemoteEnd(message.type, proc, event);
  return absl::OkStatus();
}

absl::Status SessionHosts::OnToProc(Remote& from, const ControlMessage& message) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress to, ProcAddressFromValue(message.body["to"]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t type, message.body["type"].AsInt());
  const auto inner = static_cast<ControlType>(type);
  if (type < 0 || type > UINT16_MAX || !MayTravel(inner) || message.body["body"].map() == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("message for a process: type ", type));
  Remote* route = Route(to.host);
  // A guest passes nothing on.
  if (to.host != context_->host && (route == nullptr || route == &from)) return absl::OkStatus();
  Tell(to, {inner, 0, message.body["body"]});
  return absl::OkStatus();
}

void SessionHosts::TellHang(const HangNotice& notice) {
  const ControlMessage message{ControlType::kHung, 0, ToValue(notice)};
  if (!is_guest_ || notice.owner.proc.host == context_->host) Tell(notice.owner.proc, message);
  if (is_guest_ && !hosts_.empty()) hosts_.begin()->second->link->Send(message);
}

absl::Status SessionHosts::OnHang(const Remote& from, const ControlMessage& message) {
  MONARCH_ASSIGN_OR_RETURN(const HangNotice notice, HangNoticeFromValue(message.body));
  if (is_guest_ || notice.event.actor.proc.host != from.host.host)
    return absl::PermissionDeniedError("hang: of an actor of another host");
  local_->OnRemoteHang(notice);
  if (notice.owner.proc.host != from.host.host) Tell(notice.owner.proc, message);
  return absl::OkStatus();
}

absl::Status SessionHosts::OnProcUp(Remote& from, const ControlMessage& message) {
  ProcDescription proc;
  MONARCH_ASSIGN_OR_RETURN(proc.address, ProcAddressFromValue(message.body["peer"]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t rank, message.body["rank"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(proc.pid, message.body["pid"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(proc.mesh, message.body["mesh"].AsString());
  MONARCH_ASSIGN_OR_RETURN(proc.rank_label, message.body["rank_label"].AsString());
  if (proc.address.host != from.host.host) return absl::PermissionDeniedError("a process of another host");
  if (static_cast<int64_t>(from.procs.size()) >= context_->limits.procs_per_host_max)
    return absl::ResourceExhaustedError("more processes than procs_per_host_max");
  proc.rank = static_cast<uint32_t>(rank);
  proc.phase = ProcPhase::kLaunched;
  from.procs.emplace(proc.address, std::move(proc));
  return absl::OkStatus();
}

absl::Status SessionHosts::OnLinkFrame(PeerLink& link, RelayFrame frame) {
  Remote& from = OwnerOf(link);
  const ProcAddress sender = frame.header.sender.proc;
  const ProcAddress receiver = frame.header.receiver.proc;
  if (frame.header.session != session_) return absl::PermissionDeniedError("link frame: of another session");
  if (sender.host == context_->host || (!is_guest_ && sender.host != from.host.host))
    return absl::PermissionDeniedError("link frame: in the name of a process of another host");
  if (receiver.host == context_->host) {
    local_->DeliverFrame(std::move(frame));
    return absl::OkStatus();
  }
  absl::StatusOr<bool> pause = absl::UnavailableError("relay frame: no way to the receiver's host");
  if (!is_guest_) pause = SendFrame(frame);
  if (!pause.ok()) Tell(sender, UndeliveredMessage(frame.packet, pause.status()));
  if (pause.value_or(false)) {
    Tell(sender, {ControlType::kRelayPause, 0, Value::Map{{"peer", ToValue(receiver)}}});
  }
  return absl::OkStatus();
}

void SessionHosts::OnLinkLost(PeerLink& link, const absl::Status& why) {
  for (auto& [address, attaching] : attaching_) {
    if (attaching.remote && attaching.remote->link.get() == &link) {
      return FinishAttach(std::string(address),
                          absl::UnavailableError(absl::StrCat("attach host ", address, ": ", why.message())));
    }
  }
  Lose(OwnerOf(link), std::string(why.message()));
}

FailureEvent SessionHosts::Unreachable(const ProcAddress& proc) const {
  FailureEvent event;
  event.kind = FailureKind::kUnreachable;
  event.actor = ActorAddress{proc, kAgentActor};
  event.unix_ms = absl::ToUnixMillis(WallTime());
  const auto known = known_.find(proc.host);
  const auto lost = lost_.find(proc.host);
  if (known == known_.end()) {
    event.reason = "its host is not in this session";
    return event;
  }
  event.host_name = known->second.name;
  event.reason = absl::StrCat("host ", known->second.name, " (", known->second.address, ") is unreachable");
  if (lost != lost_.end()) absl::StrAppend(&event.reason, ": ", lost->second);
  return event;
}

void SessionHosts::Lose(Remote& remote, const std::string& why) {
  const HostId id = remote.host.host;
  std::unique_ptr<Remote> gone = std::move(hosts_.at(id));
  hosts_.erase(id);
  gone->link->Close();
  lost_[id] = why;
  LogInfo("daemon", "host gone")
      .With("session", session_.ToHex())
      .With("host", id.ToHex())
      .With("address", gone->host.address)
      .With("reason", why);
  std::map<ProcAddress, ProcDescription> procs = std::move(gone->procs);
  const bool asked = gone->leaving;
  // It may be in a call of its own.
  context_->loop->Post([dropped = std::shared_ptr<Remote>(std::move(gone))] {});
  if (is_guest_) return local_->OnHomeGone(absl::StrCat("the connection to its home is lost: ", why));
  for (const auto& [address, proc] : procs) {
    FailureEvent event = Unreachable(address);
    if (asked) event.kind = FailureKind::kStopped;
    event.mesh = proc.mesh;
    event.rank = proc.rank;
    event.rank_label = proc.rank_label;
    event.pid = proc.pid;
    Broadcast(ControlType::kProcDead, address, event);
    local_->OnRemoteEnd(ControlType::kProcDead, address, event);
  }
  if (ending_ && hosts_.empty()) local_->OnHostsEnded();
}

HostControl* SessionHosts::ControlOf(const HostId& host) const {
  Remote* remote = Route(host);
  return remote == nullptr ? nullptr : remote->control.get();
}

void SessionHosts::Shutdown(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                            absl::AnyInvocable<void(absl::Status)> reply) {
  const auto found = hosts_.find(host);
  if (is_guest_ || found == hosts_.end()) {
    // Gone already, which is what was asked for.
    if (lost_.contains(host)) return reply(absl::OkStatus());
    return reply(absl::NotFoundError("shut down host: this session has attached no such host"));
  }
  found->second->leaving = true;
  found->second->control->Shutdown(host, grace, kill_after,
                                   [reply = std::move(reply)](const absl::Status& status) mutable {
                                     // Its answer may be lost with it.
                                     reply(absl::IsUnavailable(status) ? absl::OkStatus() : status);
                                   });
}

void SessionHosts::AddProc(const ProcDescription& proc) {
  const auto found = hosts_.find(proc.address.host);
  if (found != hosts_.end()) found->second->procs.insert_or_assign(proc.address, proc);
}

void SessionHosts::List(std::vector<ProcDescription>* procs) const {
  for (const auto& [id, remote] : hosts_) {
    for (const auto& [address, proc] : remote->procs) procs->push_back(proc);
  }
}

void SessionHosts::EndAll(const std::string& reason) {
  ending_ = true;
  while (!attaching_.empty()) {
    FinishAttach(std::string(attaching_.begin()->first),
                 absl::FailedPreconditionError("attach host: the session is ending"));
  }
  for (auto& [id, remote] : hosts_) {
    // A home that asked for the end knows of it.
    if (is_guest_ && remote->leaving) continue;
    remote->leaving = true;
    remote->link->Send({ControlType::kGoodbye, 0, Value::Map{{"reason", Value(reason)}}});
  }
  if (!is_guest_ && hosts_.empty()) local_->OnHostsEnded();
}

void SessionHosts::TellGone() {
  for (auto& [id, remote] : hosts_) remote->link->Send({ControlType::kOk, 0, Value::Map{}});
}

}  // namespace monarch
