// Session: what concerns other hosts.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/session.h"

namespace monarch {
namespace {

Value::Map RelayIntroduction(const ProcAddress& peer) {
  return {{"peer", ToValue(peer)}, {"mode", Value("relay")}};
}

std::map<HostId, std::vector<size_t>> ByHost(const std::vector<ProcAddress>& procs) {
  std::map<HostId, std::vector<size_t>> out;
  for (size_t i = 0; i < procs.size(); ++i) out[procs[i].host].push_back(i);
  return out;
}

// Answers of several hosts, put together. Threading: confined to the control loop.
struct Gathered {
  std::vector<FailureEvent> ends;
  absl::Status status;
  size_t missing = 0;
};

// An invalid fd: its output is not passed on.
ScopedFd DupOf(int fd) {
  ScopedFd borrowed(fd);
  absl::StatusOr<ScopedFd> dup = borrowed.Dup();
  borrowed.release();
  return dup.ok() ? *std::move(dup) : ScopedFd();
}

}  // namespace

Session::Session(DaemonContext* context, Home home, std::unique_ptr<PacketStream> stream,
                 OpenControl open_control, absl::AnyInvocable<void(Session*)> gone)
    : Session(context,
              {.id = home.session,
               .mark = SessionId(
                   Id128{home.session.high ^ context->host.high, home.session.low ^ context->host.low}),
               .client = home.client,
               .is_guest = true,
               .ticket = home.ticket},
              std::move(open_control), std::move(gone)) {
  client_.uid = home.uid;
  client_.pid = static_cast<pid_t>(home.client_pid);
  client_.name = home.client_name;
  // Its launcher ends with this daemon at the latest; output goes where this daemon's goes.
  if (absl::StatusOr<ScopedFd> self = context_->open_pidfd(getpid()); self.ok())
    client_.pidfd = *std::move(self);
  client_.out = DupOf(STDOUT_FILENO);
  client_.err = DupOf(STDERR_FILENO);
  LogInfo("daemon", "session of another host started")
      .With("session", id_.ToHex())
      .With("home", home.host.name)
      .With("name", client_.name);
  context_->events->Add(id_.ToHex(), "session_started");
  hosts_.SetHome(home.host, home.ticket, std::move(stream));
}

absl::StatusOr<ControlPass> Session::OpenControlFor(ScopedFd socket, const StartToken& ticket) {
  std::optional<ControlPass> pass = context_->control_peers->Admit(ticket, {id_, client_address_});
  if (!pass) return absl::AlreadyExistsError("open control: the ticket is in use");
  absl::StatusOr<ScopedFd> held = socket.Dup();
  MONARCH_RETURN_IF_ERROR(held.status());
  MONARCH_RETURN_IF_ERROR(open_control_(std::move(socket), ticket.ToHex()));
  pass->Hold(*std::move(held));
  return *std::move(pass);
}

void Session::OnRemoteConnect(const ProcAddress& asker, const ProcAddress& proc) {
  ProcRecord* peer = procs_.Find(proc);
  if (peer == nullptr || !peer->alive()) {
    hosts_.Tell(asker, {ControlType::kUnreachable, 0,
                        Value::Map{{"peer", ToValue(proc)}, {"event", ToValue(EndOf(proc))}}});
    return;
  }
  if (!peer->introduced()) {
    const auto [begin, end] = remote_waiting_.equal_range(proc.proc);
    if (std::none_of(begin, end, [&](const auto& entry) { return entry.second == asker; }))
      remote_waiting_.emplace(proc.proc, asker);
    return;
  }
  // Its own first, so that it knows whose the first frame is.
  if (peer->connection) peer->connection->Answer(0, ControlType::kIntroduce, RelayIntroduction(asker));
  hosts_.Tell(asker, {ControlType::kIntroduce, 0, Value(RelayIntroduction(proc))});
}

absl::Status Session::SendToHost(ProcRecord& record, const FrameHeader& header, std::string packet) {
  RelayFrame frame;
  frame.header = header;
  frame.packet = std::move(packet);
  const std::string as_sent = frame.packet.substr(0, kFrameHeaderBytes);
  const ProcAddress receiver = header.receiver.proc;
  absl::StatusOr<bool> pause =
      absl::OutOfRangeError("relay frame: its payload is beyond its sender's segment");
  const bool in_segment = (header.flags & kFlagInSegment) != 0;
  const uint64_t segment_bytes = record.shared.segment_bytes;
  if (!in_segment || (header.payload_length > 0 && header.segment_offset <= segment_bytes &&
                      header.payload_length <= segment_bytes - header.segment_offset)) {
    if (in_segment) {
      // What the descriptor names means nothing elsewhere: the payload goes along.
      MONARCH_ASSIGN_OR_RETURN(ScopedFd segment, record.shared.segment.Dup());
      frame.payload = std::make_shared<ScopedFd>(std::move(segment));
      frame.offset = header.segment_offset;
      frame.header.flags &= static_cast<uint16_t>(~(kFlagInSegment | kFlagShared));
      frame.header.segment_offset = 0;
      EncodeFrameHeader(frame.header,
                        absl::MakeSpan(reinterpret_cast<uint8_t*>(frame.packet.data()), kFrameHeaderBytes));
      frame.sent = [this, alive = std::weak_ptr<bool>(alive_), sender = header.sender.proc, receiver,
                    offset = header.segment_offset] {
        if (!alive.lock()) return;
        TellLocal(sender, {ControlType::kRelayed, 0,
                           Value::Map{{"peer", ToValue(receiver)}, {"offset", Value(offset)}}});
      };
    }
    pause = procs_.EndOf(receiver) != nullptr ? absl::UnavailableError("relay frame: the receiver is gone")
                                              : hosts_.SendFrame(frame);
  }
  if (!record.connection) return absl::OkStatus();
  if (!pause.ok()) record.connection->Send(UndeliveredMessage(as_sent, pause.status()));
  if (pause.value_or(false))
    record.connection->Answer(0, ControlType::kRelayPause, {{"peer", ToValue(receiver)}});
  return absl::OkStatus();
}

void Session::TellLocal(const ProcAddress& to, const ControlMessage& message) {
  const ProcRecord* record = procs_.Find(to);
  if (record != nullptr && record->alive() && record->introduced() && record->connection)
    record->connection->Send(message);
}

void Session::OnRemoteEnd(ControlType type, const ProcAddress& proc, const FailureEvent& event) {
  procs_.RecordEnd(proc, event);
  TellAll(type, proc, event);
  if (type != ControlType::kProcDead) return context_->events->Complete(id_.ToHex(), event);
  pauses_.Remove(proc);
  context_->events->Add(id_.ToHex(), "proc_ended", event);
  OwnerDied(proc, event.Summary());
  Rearm();
}

void Session::OnHomeGone(const std::string& why) { End(why); }

std::vector<ProcDescription> Session::RemoteProcs() const {
  std::vector<ProcDescription> procs;
  hosts_.List(&procs);
  return procs;
}

bool Session::IsLocal(const std::vector<ProcAddress>& procs) const {
  return std::all_of(procs.begin(), procs.end(),
                     [this](const ProcAddress& proc) { return proc.host == context_->host; });
}

void Session::SpawnOn(const HostId& host, SpawnRequest request, SpreadSpawns::Reply reply) {
  if (host == context_->host) return SpawnHere(std::move(request), std::move(reply));
  HostControl* control = hosts_.ControlOf(host);
  if (control == nullptr || state_ != SessionState::kRunning) {
    SpawnResult refused;
    refused.error.status =
        absl::UnavailableError(absl::StrCat("spawn: ", hosts_.Unreachable(ProcAddress{host, 0, 0}).reason));
    return reply(refused);
  }
  control->Spawn(request, [this, alive = std::weak_ptr<bool>(alive_),
                           reply = std::move(reply)](const SpawnResult& result) mutable {
    if (!alive.lock()) return;
    // The host may be lost before it has told of them; or one has ended, and this answer came more slowly.
    for (const ProcDescription& proc : result.procs) {
      if (procs_.EndOf(proc.address) == nullptr) hosts_.AddProc(proc);
    }
    reply(result);
  });
}

void Session::KillSpawned(const std::vector<ProcAddress>& procs, absl::AnyInvocable<void()> done) {
  StopRequest stop;
  stop.procs = procs;
  stop.grace = absl::Milliseconds(1);
  stop.kill_after = absl::Milliseconds(context_->limits.session_end_kill_ms);
  stop.reason = "its mesh could not be spawned whole";
  Stop(stop, [done = std::move(done)](const std::vector<FailureEvent>&) mutable { done(); });
}

void Session::Stop(const StopRequest& request, Stopper::Reply reply) {
  if (IsLocal(request.procs)) return StopHere(request, std::move(reply));
  auto gathered = std::make_shared<Gathered>();
  auto shared_reply = std::make_shared<Stopper::Reply>(std::move(reply));
  gathered->ends.resize(request.procs.size());
  const auto parts = ByHost(request.procs);
  gathered->missing = parts.size();
  for (const auto& [host, indices] : parts) {
    StopRequest part = request;
    part.procs.clear();
    for (const size_t index : indices) part.procs.push_back(request.procs[index]);
    const auto take = [gathered, shared_reply, places = indices](const std::vector<FailureEvent>& ends) {
      for (size_t i = 0; i < places.size() && i < ends.size(); ++i) gathered->ends[places[i]] = ends[i];
      if (--gathered->missing == 0) (*shared_reply)(std::move(gathered->ends));
    };
    if (host == context_->host) {
      StopHere(part, take);
      continue;
    }
    const auto lost = [this, procs = part.procs] {
      std::vector<FailureEvent> ends;
      for (const ProcAddress& proc : procs) ends.push_back(EndOf(proc));
      return ends;
    };
    HostControl* control = hosts_.ControlOf(host);
    if (control == nullptr) {
      take(lost());
      continue;
    }
    control->Stop(part, [take, lost, alive = std::weak_ptr<bool>(alive_)](auto ends) {
      if (!alive.lock()) return;
      take(ends.ok() ? *ends : lost());
    });
  }
}

FailureEvent Session::EndOf(const ProcAddress& proc) const {
  if (const FailureEvent* end = procs_.EndOf(proc)) return *end;
  if (proc.host != context_->host) return hosts_.Unreachable(proc);
  FailureEvent event;
  event.kind = FailureKind::kUnreachable;
  event.actor = ActorAddress{proc, kAgentActor};
  event.host_name = context_->host_name;
  event.reason = "no such process in this session";
  return event;
}

void Session::Signal(const std::vector<ProcAddress>& procs, int signal,
                     absl::AnyInvocable<void(absl::Status)> reply) {
  if (IsLocal(procs)) return reply(SignalHere(procs, signal));
  auto gathered = std::make_shared<Gathered>();
  auto shared_reply = std::make_shared<absl::AnyInvocable<void(absl::Status)>>(std::move(reply));
  const auto parts = ByHost(procs);
  gathered->missing = parts.size();
  for (const auto& [host, indices] : parts) {
    std::vector<ProcAddress> part;
    for (const size_t index : indices) part.push_back(procs[index]);
    const auto take = [gathered, shared_reply](const absl::Status& status) {
      gathered->status.Update(status);
      if (--gathered->missing == 0) (*shared_reply)(gathered->status);
    };
    HostControl* control = hosts_.ControlOf(host);
    if (host == context_->host) {
      take(SignalHere(part, signal));
    } else if (control == nullptr) {
      take(absl::NotFoundError(
          absl::StrCat("signal ", part.front().ToString(), ": ", EndOf(part.front()).reason)));
    } else {
      control->Signal(part, signal, take);
    }
  }
}

void Session::AttachHost(const std::string& address, absl::Duration timeout,
                         absl::AnyInvocable<void(absl::StatusOr<AttachedHost>)> reply) {
  hosts_.Attach({client_address_, client_.pid, client_.name}, address, timeout, std::move(reply));
}

void Session::ShutdownHost(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                           absl::AnyInvocable<void(absl::Status)> reply) {
  if (host != context_->host) return hosts_.Shutdown(host, grace, kill_after, std::move(reply));
  if (!context_->leave) {
    return reply(absl::FailedPreconditionError(
        "shut down host: this daemon is no worker daemon, it ends with its client or by its operator"));
  }
  StopRequest stop;
  for (const auto& [proc, record] : procs_.all()) {
    if (!record.is_client) stop.procs.push_back(record.description.address);
  }
  stop.grace = grace;
  stop.kill_after = kill_after;
  stop.reason = "its host is shut down";
  StopHere(stop, [context = context_, reply = std::move(reply)](const std::vector<FailureEvent>&) mutable {
    reply(absl::OkStatus());
    context->leave("a client shut this host down");
  });
}

}  // namespace monarch
