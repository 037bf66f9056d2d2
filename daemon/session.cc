#include "daemon/session.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "daemon/protocol.h"
#include "daemon/shared_fds.h"
#include "message/memfd.h"
#include "message/ring.h"
#include "message/utf8.h"

namespace monarch {
namespace {

// Failed actors stay in the listing while their process lives, so that it tells why calls fail; the latest
// ones.
// Names and labels that a process chooses, kept for listings.
constexpr size_t kNameBytesMax = 1024;

std::string BoundedText(const Value& value) {
  return ToUtf8(value.AsString().value_or("").substr(0, kNameBytesMax));  // which may have cut a sign in two
}

SessionIdentity NewIdentity(DaemonContext* context) {
  const SessionId id(context->random_id());
  return {.id = id, .mark = id, .client = ProcAddress{context->host, context->next_proc++, 1}, .ticket = {}};
}

// What a process says of one of its actors.
absl::StatusOr<ActorRecord> ActorFromValue(const ProcAddress& proc, const Value& body) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t actor, body["actor"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t rank, body["rank"].AsInt());
  ActorRecord entry;
  entry.address = ActorAddress{proc, static_cast<uint64_t>(actor)};
  if (!body["owner"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(entry.owner, ActorAddressFromValue(body["owner"]));
  }
  entry.name = BoundedText(body["name"]);
  entry.actor_class = BoundedText(body["class"]);
  entry.mesh = BoundedText(body["mesh"]);
  entry.rank = static_cast<uint32_t>(rank);
  entry.rank_label = BoundedText(body["rank_label"]);
  entry.incarnation = static_cast<uint32_t>(body["incarnation"].AsInt().value_or(1));
  if (!body["restarts"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(entry.restarts, MeshRestartsFromValue(body["restarts"]));
    entry.restarts->mesh = BoundedText(Value(entry.restarts->mesh));
    entry.restarts->policy = BoundedText(Value(entry.restarts->policy));
  }
  return entry;
}

}  // namespace

Session::Session(DaemonContext* context, const SessionIdentity& identity, OpenControl open_control,
                 absl::AnyInvocable<void(Session*)> gone)
    : context_(context),
      id_(identity.id),
      mark_(identity.mark),
      started_(context->loop->Now()),
      client_address_(identity.client),
      alive_(std::make_shared<bool>(true)),
      is_guest_(identity.is_guest),
      ticket_(identity.ticket),
      open_control_(std::move(open_control)),
      gone_(std::move(gone)),
      procs_(kTombstonesMax),
      introducer_(static_cast<uint32_t>(context->limits.ring_links_max)),
      pauses_(static_cast<size_t>(context->limits.relay_pause_bytes)),
      hangs_(context->loop, &procs_,
             [this](const ActorAddress& actor, const Hang& hang, absl::Duration began) {
               OnHang(actor, hang, began);
             }),
      spawner_(this, absl::Milliseconds(context->limits.spawn_phase_ms)),
      stopper_(this),
      hosts_(context, id_, this),
      spread_(this) {}

Session::Session(DaemonContext* context, Client client, OpenControl open_control,
                 absl::AnyInvocable<void(Session*)> gone)
    : Session(context, NewIdentity(context), std::move(open_control), std::move(gone)) {
  client_ = std::move(client);
  ProcRecord record;
  record.description.address = client_address_;
  record.description.pid = client_.pid;
  record.description.phase = ProcPhase::kReady;
  record.is_client = true;
  record.connection = client_.connection;
  record.shared = std::move(client_.shared);
  client_.connection->proc = client_address_.proc;
  client_.connection->SetHandler(this);
  ProcRecord& added = procs_.Add(std::move(record));
  LogInfo("daemon", "session started")
      .With("session", id_.ToHex())
      .With("client_pid", client_.pid)
      .With("uid", client_.uid)
      .With("name", client_.name);
  context_->events->Add(id_.ToHex(), "session_started");
  Welcome(added, client_.hello_request);
  if (client_.pidfd.valid() && context_->survives) {
    // What the next daemon finds the session by.
    const absl::Status started = EnsureLauncher();
    if (!started.ok()) LogError("daemon", "no launcher").With("error", started.ToString());
  }
  WatchClient();
}

Session::~Session() {
  for (auto& [proc, record] : procs_.all()) {
    if (record.connection) record.connection->Close();
  }
  if (client_.pidfd.valid()) context_->loop->Unwatch(client_.pidfd.get());
  if (timer_ != 0) context_->loop->Cancel(timer_);
}

void Session::Welcome(ProcRecord& record, uint32_t request) {
  if (record.control.token().is_zero())
    record.control = context_->control_peers->Issue({id_, record.description.address});
  record.connection->Answer(request, ControlType::kWelcome,
                            {{"session", ToValue(id_)},
                             {"self", ToValue(record.description.address)},
                             {"control_token", ToValue(record.control.token())},
                             {"version", Value(kVersion)},
                             {"host_name", Value(context_->host_name)},
                             {"run_dir", Value(context_->run_dir)},
                             {"survives", Value(context_->survives && !is_guest_)},
                             {"ring_links_max", Value(context_->limits.ring_links_max)}});
}

absl::Status Session::OnPacket(NativeConnection& connection, Packet packet) {
  ProcRecord* record = procs_.Find(connection.proc);
  if (record == nullptr) return absl::InvalidArgumentError("packet of a process that is gone");
  if (IsFramePacket(packet.bytes)) return OnFrame(*record, std::move(packet.bytes));
  MONARCH_ASSIGN_OR_RETURN(const ControlMessage message, DecodeControl(packet.bytes));
  const absl::Status handled = record->introduced() ? OnControl(*record, message, std::move(packet.fds))
                                                    : OnWorkerHello(*record, message, std::move(packet.fds));
  Rearm();
  return handled;
}

void Session::OnClosed(NativeConnection& connection, const absl::Status& why) {
  ProcRecord* record = procs_.Find(connection.proc);
  if (record == nullptr) return;
  record->connection.reset();
  // Their frames come back undelivered from now on.
  ResumeSenders(*record, 0);
  // An end alone says nothing about the process: the kernel tells of its death.
  if (absl::IsUnavailable(why)) return;
  LogWarning("daemon", "connection of a process closed")
      .With("session", id_.ToHex())
      .With("proc", connection.proc)
      .With("pid", record->description.pid)
      .With("error", std::string(why.message()));
}

absl::Status Session::OnWorkerHello(ProcRecord& record, const ControlMessage& message,
                                    std::vector<ScopedFd> fds) {
  if (message.type != ControlType::kHello)
    return absl::InvalidArgumentError("the first message is not a hello");
  absl::Status refusal = CheckHello(message.body, "worker");
  if (refusal.ok()) {
    const absl::StatusOr<Id128> token = Id128FromValue(message.body["token"]);
    if (!token.ok() || record.token.is_zero() || *token != record.token) {
      refusal = absl::UnauthenticatedError("hello: wrong start token");
    }
  }
  if (refusal.ok()) {
    absl::StatusOr<SharedFds> shared = TakeSharedFds(&fds);
    refusal = shared.status();
    if (shared.ok()) record.shared = *std::move(shared);
  }
  if (!refusal.ok()) {
    record.connection->Refuse(message.request, refusal);
    return refusal;
  }
  record.token = StartToken();
  record.description.phase = std::max(record.description.phase, ProcPhase::kConnected);
  if (launcher_) launcher_->AddDoorbell(record.description.address, false, record.shared.doorbell.get());
  Welcome(record, message.request);
  keeper_.KeepProc(record);
  spawner_.OnConnected(record, context_->loop->Now());
  AnswerWaiting(record);
  return absl::OkStatus();
}

absl::Status Session::OnControl(ProcRecord& record, const ControlMessage& message,
                                std::vector<ScopedFd> fds) {
  switch (message.type) {
    case ControlType::kReady:
      if (record.is_client) break;
      if (record.description.phase < ProcPhase::kReady) {
        record.description.phase = ProcPhase::kReady;
        FailureEvent who = BaseEvent(record);
        context_->events->Add(id_.ToHex(), "proc_ready", std::move(who));
        spawner_.OnReady(record, context_->loop->Now());
      }
      return absl::OkStatus();
    case ControlType::kOpenControl: {
      if (fds.size() != 1) return absl::InvalidArgumentError("open control: wanted one fd");
      const absl::Status opened =
          open_control_(std::move(fds[0]), absl::StrCat(id_.ToHex(), " ", record.description.address.proc));
      if (opened.ok()) {
        record.connection->Answer(message.request, ControlType::kOk);
      } else {
        record.connection->Refuse(message.request, opened);
      }
      return absl::OkStatus();
    }
    case ControlType::kConnect:
      return OnConnect(record, message);
    case ControlType::kActorUp:
      return OnActorUp(record, message.body);
    case ControlType::kActorDown:
      return OnActorDown(record, message.body);
    case ControlType::kHandlerEnded:
      hangs_.OnHandlerEnded();
      return absl::OkStatus();
    case ControlType::kGoodbye:
      if (!record.is_client) break;
      OnGoodbye(message);
      return absl::OkStatus();
    default:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("unexpected message type ", static_cast<int>(message.type)));
}

absl::Status Session::OnConnect(ProcRecord& record, const ControlMessage& message) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress address, ProcAddressFromValue(message.body["peer"]));
  if (address == record.description.address) {
    record.connection->Refuse(message.request,
                              absl::InvalidArgumentError("connect: that is the asker itself"));
    return absl::OkStatus();
  }
  if (address.host != context_->host && hosts_.Reaches(address.host) && procs_.EndOf(address) == nullptr) {
    hosts_.Connect(record.description.address, address);
    if (message.request != 0)
      record.connection->Answer(message.request, ControlType::kOk, {{"peer", ToValue(address)}});
    return absl::OkStatus();
  }
  ProcRecord* peer = procs_.Find(address);
  if (peer == nullptr || !peer->alive()) {
    SendUnreachable(record, message.request, address);
  } else if (!peer->introduced()) {
    return WaitFor(*peer, record, message.request);
  } else {
    Introduce(record, message.request, *peer);
  }
  return absl::OkStatus();
}

absl::Status Session::WaitFor(const ProcRecord& peer, ProcRecord& asker, uint32_t request) {
  const uint64_t proc = asker.description.address.proc;
  const auto [begin, end] = waiting_.equal_range(peer.description.address.proc);
  // One answer serves all; else a process could fill the table.
  if (std::any_of(begin, end, [&](const auto& entry) { return entry.second.first == proc; })) {
    if (request != 0)
      asker.connection->Refuse(request, absl::AlreadyExistsError("connect: asked for before"));
    return absl::OkStatus();
  }
  waiting_.emplace(peer.description.address.proc, std::make_pair(proc, request));
  return absl::OkStatus();
}

void Session::SendUnreachable(ProcRecord& to, uint32_t request, const ProcAddress& peer) {
  to.connection->Answer(request, ControlType::kUnreachable,
                        {{"peer", ToValue(peer)}, {"event", ToValue(EndOf(peer))}});
}

void Session::Introduce(ProcRecord& asker, uint32_t request, ProcRecord& peer) {
  if (!asker.connection) return;
  const auto how = introducer_.Introduce(asker.description.address.proc, peer.description.address.proc);
  if (!how.is_new) {
    // Both asked at the same time, or one asked twice: the introduction is on its way already.
    if (request != 0)
      asker.connection->Answer(request, ControlType::kOk, {{"peer", ToValue(peer.description.address)}});
    return;
  }
  ScopedFd ring;
  Introducer::Introduction means = how;
  if (means.ring) {
    absl::StatusOr<ScopedFd> made = CreateSealedMemfd("monarch-ring", kRingMemfdBytes);
    if (made.ok()) {
      ring = *std::move(made);
    } else {
      // Slower, but they can talk. The pair's bits stay taken until one of them ends.
      LogError("daemon", "no ring, frames are relayed").With("error", made.status().ToString());
      means.ring = false;
    }
  }
  if (means.ring && launcher_) {
    launcher_->Link(asker.description.address, means.bit_in_a, peer.description.address, means.bit_in_b);
  }
  const uint64_t a = asker.description.address.proc;
  const uint64_t b = peer.description.address.proc;
  keeper_.KeepLink(a, b, means, ring.get());
  SendIntroduction(asker, request, peer, means, true, 0, ring.get());
  SendIntroduction(peer, 0, asker, means, false, 1, ring.get());
  if (asker.connection && peer.connection && asker.connection->idle() && peer.connection->idle())
    keeper_.LinkArrived(a, b);
}

void Session::SendIntroduction(ProcRecord& to, uint32_t request, const ProcRecord& peer,
                               const Introducer::Introduction& how, bool to_is_a, int side, int ring_fd) {
  if (!to.connection) return;
  std::vector<int> fds = {peer.shared.doorbell.get(), peer.shared.bell.get(), peer.shared.segment.get()};
  if (how.ring) {
    fds.push_back(ring_fd);
    if (launcher_ && launcher_->board() >= 0) fds.push_back(launcher_->board());
  }
  to.connection->Answer(request, ControlType::kIntroduce,
                        {{"peer", ToValue(peer.description.address)},
                         {"who", ToValue(BaseEvent(peer))},
                         {"mode", Value(how.ring ? "ring" : "relay")},
                         {"side", Value(side)},
                         {"peer_bit", Value(to_is_a ? how.bit_in_b : how.bit_in_a)},
                         {"local_bit", Value(to_is_a ? how.bit_in_a : how.bit_in_b)}},
                        fds);
}

void Session::AnswerWaiting(ProcRecord& peer) {
  const auto [first, last] = remote_waiting_.equal_range(peer.description.address.proc);
  std::vector<ProcAddress> remote_askers;
  for (auto it = first; it != last; ++it) remote_askers.push_back(it->second);
  remote_waiting_.erase(first, last);
  for (const ProcAddress& asker : remote_askers) OnRemoteConnect(asker, peer.description.address);
  const auto [begin, end] = waiting_.equal_range(peer.description.address.proc);
  std::vector<std::pair<uint64_t, uint32_t>> askers;
  for (auto it = begin; it != end; ++it) askers.push_back(it->second);
  waiting_.erase(begin, end);
  for (const auto& [asker, request] : askers) {
    ProcRecord* record = procs_.Find(asker);
    if (record == nullptr || !record->alive() || !record->connection) continue;
    if (peer.alive()) {
      Introduce(*record, request, peer);
    } else {
      SendUnreachable(*record, request, peer.description.address);
    }
  }
}

absl::Status Session::OnActorUp(ProcRecord& record, const Value& body) {
  MONARCH_ASSIGN_OR_RETURN(ActorRecord actor, ActorFromValue(record.description.address, body));
  if (actors_.Find(actor.address) == nullptr) {
    // Only the listing is incomplete then; the process has a limit of its own.
    if (record.actors_up >= context_->limits.actors_per_proc_max) return absl::OkStatus();
    keeper_.KeepActor(actor);
    hangs_.Watch(actor.address, absl::Milliseconds(body["hung_after_ms"].AsInt().value_or(0)));
  }
  actors_.Put(record, std::move(actor));
  return absl::OkStatus();
}

absl::Status Session::OnActorDown(ProcRecord& record, const Value& body) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t actor, body["actor"].AsInt());
  const ActorAddress address{record.description.address, static_cast<uint64_t>(actor)};
  hangs_.Forget(address);
  keeper_.ForgetHang(address);
  FailureEvent event;
  event.kind = FailureKind::kStopped;
  if (!body["event"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(event, FailureEventFromValue(body["event"]));
  }
  if (event.is_stop()) {
    keeper_.ForgetActor(address);
    actors_.Remove(record, address);
    return absl::OkStatus();
  }
  if (const auto dropped = actors_.MarkFailed(procs_, address)) keeper_.ForgetActor(*dropped);
  if (const ActorRecord* failed = actors_.Find(address)) keeper_.KeepFailedActor(*failed);
  keeper_.KeepFailure(event);
  context_->events->Add(id_.ToHex(), "actor_failed", std::move(event));
  return absl::OkStatus();
}

absl::Status Session::OnFrame(ProcRecord& record, std::string packet) {
  MONARCH_ASSIGN_OR_RETURN(const FrameHeader header,
                           CheckRelayedFrame(packet, id_, record.description.address));
  if (!record.introduced()) return absl::InvalidArgumentError("a frame before the hello");
  if (header.receiver.proc.host != context_->host) return SendToHost(record, header, std::move(packet));
  RelayFrame frame;
  frame.header = header;
  frame.packet = std::move(packet);
  DeliverFrame(std::move(frame));
  return absl::OkStatus();
}

void Session::DeliverFrame(RelayFrame frame) {
  const ProcAddress& sender = frame.header.sender.proc;
  const ProcAddress& address = frame.header.receiver.proc;
  ProcRecord* receiver = procs_.Find(address);
  absl::Status delivered = absl::UnavailableError("relay frame: the receiver is gone");
  const std::string head = frame.packet.substr(0, kFrameHeaderBytes);
  if (receiver != nullptr && receiver->alive() && receiver->connection && receiver->introduced()) {
    absl::StatusOr<ScopedFd> payload = ScopedFd();
    if (frame.payload != nullptr) payload = frame.payload->Dup();
    delivered = payload.status();
    if (payload.ok()) {
      delivered = receiver->connection->SendFrame(std::move(frame.packet), *std::move(payload),
                                                  frame.payload ? frame.header.payload_length : 0);
    }
    // Also when it was refused: what comes next would be, too.
    if (pauses_.OnFrame(address, sender, receiver->connection->frame_bytes())) {
      hosts_.Tell(sender, {ControlType::kRelayPause, 0, Value::Map{{"peer", ToValue(address)}}});
    }
  }
  if (!delivered.ok()) hosts_.Tell(sender, UndeliveredMessage(head, delivered));
}

void Session::OnFramesSent(NativeConnection& connection) {
  const ProcRecord* receiver = procs_.Find(connection.proc);
  if (receiver != nullptr) ResumeSenders(*receiver, connection.frame_bytes());
}

void Session::ResumeSenders(const ProcRecord& receiver, size_t waiting_bytes) {
  const ProcAddress& address = receiver.description.address;
  for (const ProcAddress& sender : pauses_.OnSent(address, waiting_bytes)) {
    hosts_.Tell(sender, {ControlType::kRelayResume, 0, Value::Map{{"peer", ToValue(address)}}});
  }
}

void Session::Broadcast(ControlType type, const ProcAddress& peer, const FailureEvent& event) {
  TellAll(type, peer, event);
  hosts_.Broadcast(type, peer, event);
}

void Session::TellAll(ControlType type, const ProcAddress& peer, const FailureEvent& event) {
  const ControlMessage message{type, 0, Value::Map{{"peer", ToValue(peer)}, {"event", ToValue(event)}}};
  for (auto& [proc, record] : procs_.all()) {
    if (record.alive() && record.introduced() && record.connection) record.connection->Send(message);
  }
}

}  // namespace monarch
