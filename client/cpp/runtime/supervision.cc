#include <unistd.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/cpp/runtime/runtime_impl.h"
#include "message/control_message.h"
#include "message/utf8.h"

namespace monarch {
namespace {

// Clients know it by this text.
constexpr char kOwnerDied[] = "owner died";

int64_t UnixMs() { return absl::ToUnixMillis(WallTime()); }

std::string TextOf(const Value& value) {
  const std::string* text = value.string();
  return text == nullptr ? "" : *text;
}

// The shape in a create message; the single rank if there is none that makes sense.
Shape ShapeOf(const Value& meta) {
  std::vector<std::string> labels;
  std::vector<size_t> sizes;
  const Value::List* label_list = meta["labels"].list();
  const Value::List* size_list = meta["sizes"].list();
  if (label_list == nullptr || size_list == nullptr) return Shape();
  for (const Value& label : *label_list) labels.push_back(TextOf(label));
  for (const Value& size : *size_list) {
    const auto number = size.AsInt();
    sizes.push_back(number.ok() && *number > 0 ? static_cast<size_t>(*number) : 0);
  }
  auto slice = NDSlice::RowMajor(std::move(sizes));
  if (!slice.ok()) return Shape();
  auto shape = Shape::Create(std::move(labels), *std::move(slice));
  return shape.ok() ? *std::move(shape) : Shape();
}

std::string LabelOf(const Shape& shape, uint32_t rank) {
  return rank < shape.size() ? shape.PointLabel(rank) : "";
}

void Describe(const ActorAddress& actor, const Runtime::ActorInfo& info, FailureEvent* event) {
  event->actor = actor;
  event->mesh = info.mesh;
  event->rank = info.rank;
  event->rank_label = LabelOf(info.shape, info.rank);
  event->actor_class = info.actor_class;
  event->pid = getpid();
  if (event->unix_ms == 0) event->unix_ms = UnixMs();
}

// What comes for the actor rings the default word from now on.
void TakeWordBack(uint64_t actor, uint32_t word, Doorbell* doorbell) {
  if (word != kServiceWord && doorbell->WordOf(actor, word) == word) doorbell->RegisterActor(word, 0);
}

// Of a control packet; the rest of it is small.
constexpr size_t kDownEventBytesMax = 56 << 10;

// A cut may go through a character, hence ToUtf8: what is not UTF-8 cannot be sent.
void CutTexts(size_t bytes_max, FailureEvent* event) {
  for (std::string* text : {&event->stderr_tail, &event->traceback}) {
    // Their last lines say what happened.
    if (text->size() > bytes_max) *text = ToUtf8(text->substr(text->size() - bytes_max));
  }
  for (std::string* text : {&event->backtrace, &event->reason}) {
    if (text->size() > bytes_max) *text = ToUtf8(text->substr(0, bytes_max));
  }
  for (FailureEvent& cause : event->cause) CutTexts(bytes_max, &cause);
}

// The event as the daemon keeps it, which gets it in one packet.
Value ForDaemon(FailureEvent event) {
  for (size_t bytes_max = 16 << 10; EncodeFailureEvent(event).size() > kDownEventBytesMax; bytes_max /= 2) {
    if (bytes_max == 0) event.cause.clear();
    CutTexts(bytes_max, &event);
    if (bytes_max == 0) break;
  }
  return ToValue(event);
}

}  // namespace

FailureEvent RuntimeImpl::DaemonEnded(const ActorAddress& actor) const {
  FailureEvent event;
  event.kind = FailureKind::kUnreachable;
  event.reason = daemon_.failure();
  if (event.reason.empty()) event.reason = "monarchd ended";
  event.actor = actor;
  event.unix_ms = UnixMs();
  return event;
}

FailureEvent RuntimeImpl::EventFor(const FailureEvent& cause, const ActorAddress& actor) {
  FailureEvent event = cause;
  event.actor = actor;
  MutexLock lock(mu_);
  owned_.Complete(actor, &event);
  return event;
}

void RuntimeImpl::FailCallsTo(const ProcAddress* proc, const FailureEvent& event) {
  calls_.FailProc(proc, [&](const ActorAddress& actor) { return EventFor(event, actor); });
}

void RuntimeImpl::DropPeer(const std::shared_ptr<Peer>& peer, const FailureEvent& event) {
  if (!peer->Gone(event)) return;
  segment_->ReleaseAll(peer->key);
  WakeForSegment();
}

void RuntimeImpl::BreakLink(const std::shared_ptr<Peer>& peer, const absl::Status& reason) {
  FailureEvent event;
  event.kind = FailureKind::kUnreachable;
  event.reason = absl::StrCat("link broken: ", reason.ToString());
  event.actor = {peer->address, 0};
  event.unix_ms = UnixMs();
  for (std::shared_ptr<Peer>& at : ring_peers_) {
    if (at == peer) at = nullptr;
  }
  if (!peer->Gone(event)) return;
  LogWarning("runtime", "link broken")
      .With("peer", peer->address.ToString())
      .With("status", reason.ToString());
  segment_->ReleaseAll(peer->key);
  WakeForSegment();
  sequencer_.Forget(peer->address);
  FailCallsTo(&peer->address, event);
}

void RuntimeImpl::OnProcDead(const ProcAddress& proc, const FailureEvent& event) {
  WaitWords::Batch batch(words_.get(), kServiceWord);
  const std::shared_ptr<Peer> peer = peers_.Find(proc);
  {
    MutexLock lock(drain_mu_);
    for (std::shared_ptr<Peer>& at : ring_peers_) {
      if (peer == nullptr || at != peer) continue;
      // All that it said before it died comes first.
      peer->ring()->PeerDied(absl::UnavailableError("the process is dead"));
      absl::StatusOr<size_t> taken = 0;
      do {
        taken = peer->ring()->Receive(SIZE_MAX, [&](Frame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_) {
          static_cast<void>(Accept(peer, std::move(frame)));
        });
      } while (taken.ok() && *taken > 0);
      at = nullptr;
    }
    sequencer_.Forget(proc);
  }
  // In this order: who sends from here on sees that it is dead, and what was sent before is among the
  // expected answers.
  if (!dead_.Add(proc, event)) return;
  if (peer != nullptr) {
    DropPeer(peer, event);
    peers_.Remove(proc);
  }
  FailCallsTo(&proc, event);
  std::vector<OwnedMeshes::Report> reports;
  if (!event.is_stop()) {
    MutexLock lock(mu_);
    reports = owned_.Died(proc, event);
  }
  ReportToOwners(reports);
  StopOrphans(proc);
}

void RuntimeImpl::StopOrphans(const ProcAddress& proc) {
  for (const uint64_t id : actors_.OwnedFrom(proc)) {
    const auto orphan = actors_.Find(id);
    if (!orphan.has_value()) continue;  // It ended meanwhile.
    FailureEvent event;
    event.kind = FailureKind::kStopped;
    event.reason = kOwnerDied;
    event.host_name = host_name_;
    Describe({self_, id}, orphan->description, &event);
    actors_.Orphan(id, event);
    // Its thread may not look for long.
    TakeWordBack(id, orphan->word, doorbell_.get());
    AnswerLeftOver(orphan->mailbox->RefuseCalls(), event);
    // It may be at work on a call for as long as it likes. Only the callers' processes know which they wait
    // for.
    calls_.FailActor({self_, id}, event);
    std::set<ProcAddress> senders;
    {
      MutexLock lock(drain_mu_);
      senders = sequencer_.SendersTo({self_, id});
    }
    for (const ProcAddress& sender : senders) {
      FrameHeader header = HeaderTo(FrameKind::kOrphaned, kAgentActor, {sender, kAgentActor});
      header.flags = kFlagUrgent;
      header.call_id = id;
      SendEvent(header, event);
    }
    const FrameHeader header = HeaderTo(FrameKind::kStopActor, kAgentActor, {self_, id});
    DeliverToActor(MakeMessage(header, *EncodeValue(Value::Map{{"reason", kOwnerDied}})));
    // A sender that read the word before has woken nobody who looks.
    Drain(words_->ThreadWord());
  }
}

void RuntimeImpl::ReportToOwners(const std::vector<OwnedMeshes::Report>& reports) {
  for (const OwnedMeshes::Report& report : reports) {
    FrameHeader header = HeaderTo(FrameKind::kActorFailed, report.event.actor.actor, {self_, report.owner});
    header.sender = report.event.actor;
    header.rank = report.event.rank;
    DeliverToActor(MakeMessage(header, EncodeFailureEvent(report.event)));
  }
}

void RuntimeImpl::AddOwnedMesh(const OwnedMesh& mesh) {
  if (fork_.in_child()) return;
  std::vector<OwnedMeshes::Report> reports;
  {
    MutexLock lock(mu_);
    owned_.Add(mesh);
    for (const ProcAddress& proc : mesh.procs) {
      std::optional<FailureEvent> event = dead_.Find(proc);
      if (!event.has_value() && daemon_ended_ && is_client_) event = DaemonEnded({proc, 0});
      if (!event.has_value() || event->is_stop()) continue;
      auto more = owned_.DiedBefore(proc, *event);
      reports.insert(reports.end(), more.begin(), more.end());
    }
  }
  ReportToOwners(reports);
}

void RuntimeImpl::RemoveOwnedMesh(uint64_t owner, uint64_t actor, const std::string& mesh) {
  if (fork_.in_child()) return;
  MutexLock lock(mu_);
  owned_.Remove(owner, actor, mesh);
}

void RuntimeImpl::RemoveOwnedProcMesh(uint64_t owner, const std::vector<ProcAddress>& procs) {
  if (fork_.in_child()) return;
  MutexLock lock(mu_);
  owned_.RemoveProcs(owner, procs);
}

absl::StatusOr<FailureEvent> RuntimeImpl::DeathOf(const ProcAddress& proc, absl::Duration timeout) {
  if (absl::Status forked = fork_.Check(); !forked.ok()) return forked;
  if (auto event = dead_.FindDetail(proc, timeout)) return *std::move(event);
  return absl::NotFoundError(absl::StrCat(proc.ToString(), " is not known to be dead"));
}

void RuntimeImpl::TellActorUp(uint64_t actor, const ActorInfo& info) {
  Value::Map body = {{"actor", actor},
                     {"name", info.name},
                     {"class", info.actor_class},
                     {"mesh", info.mesh},
                     {"rank", info.rank},
                     {"rank_label", LabelOf(info.shape, info.rank)},
                     {"owner", ToValue(info.owner)}};
  if (info.hung_after_ms > 0) body["hung_after_ms"] = info.hung_after_ms;
  if (info.incarnation > 1) body["incarnation"] = info.incarnation;
  if (info.restarts.has_value()) body["restarts"] = ToValue(*info.restarts);
  static_cast<void>(daemon_.Send({ControlType::kActorUp, 0, std::move(body)}));
}

void RuntimeImpl::CreateActor(Message message) {
  const FrameHeader header = message.header;
  const auto meta = DecodeValue(message.view.meta);
  const auto id = meta.ok() ? (*meta)["actor"].AsInt() : meta.status();
  const auto owner = meta.ok() ? ActorAddressFromValue((*meta)["owner"]) : meta.status();
  const auto rank = meta.ok() ? (*meta)["rank"].AsInt() : meta.status();
  absl::StatusOr<std::shared_ptr<Inbox>> mailbox =
      absl::InvalidArgumentError("create: actor, rank or owner is missing");
  ActorInfo info;
  if (id.ok() && owner.ok() && rank.ok()) {
    info.name = TextOf((*meta)["name"]);
    info.actor_class = TextOf((*meta)["class"]);
    info.mesh = TextOf((*meta)["mesh"]);
    info.rank = static_cast<uint32_t>(*rank);
    info.shape = ShapeOf(*meta);
    info.owner = *owner;
    info.owner_label = TextOf((*meta)["owner_label"]);
    info.hung_after_ms = (*meta)["hung_after_ms"].AsInt().value_or(0);
    info.incarnation = (*meta)["incarnation"].AsInt().value_or(1);
    if ((*meta)["only_if_sound"].AsBool().value_or(false) && actors_.AnyFailed()) {
      mailbox = absl::FailedPreconditionError(
          "error spawning actor mesh: Cannot spawn new actors on mesh with supervision events");
    } else {
      mailbox = actors_.Add(static_cast<uint64_t>(*id), info);
    }
  }
  if (!mailbox.ok()) {
    FailureEvent event;
    event.kind = FailureKind::kStartFailed;
    event.reason = std::string(mailbox.status().message());
    event.actor = {self_, id.ok() ? static_cast<uint64_t>(*id) : 0};
    event.mesh = info.mesh;
    event.rank = info.rank;
    event.actor_class = info.actor_class;
    event.host_name = host_name_;
    event.pid = getpid();
    event.unix_ms = UnixMs();
    actors_.Refuse(event.actor.actor, event);
    SendFailure(header, event);
    return;
  }
  TellActorUp(static_cast<uint64_t>(*id), info);
  RuntimeTask task;
  task.kind = RuntimeTask::Kind::kCreateActor;
  task.actor = static_cast<uint64_t>(*id);
  task.create = std::move(message);
  task.mailbox = *std::move(mailbox);
  AddTask(std::move(task));
  AnswerEmpty(header);
}

void RuntimeImpl::EndActor(uint64_t actor, FailureEvent event) {
  if (fork_.in_child()) return;
  const auto found = actors_.Find(actor);
  if (!found.has_value()) return;
  const ActorInfo& info = found->description;
  event.host_name = host_name_;
  Describe({self_, actor}, info, &event);
  const auto ended = actors_.End(actor, event);
  if (!ended.has_value()) return;  // Another thread was faster.
  TakeWordBack(actor, ended->word, doorbell_.get());
  AnswerLeftOver(ended->mailbox->Close(), event);
  {
    MutexLock lock(mu_);
    owned_.RemoveOwner(actor);
  }
  Value::Map down = {{"actor", actor}};
  if (!event.is_stop()) down["event"] = ForDaemon(event);
  static_cast<void>(daemon_.Send({ControlType::kActorDown, 0, std::move(down)}));
  if (!event.is_stop()) TellOwner(info, event);
  // Its pairs' numbers end: those from it, and, by who sent them, those to it.
  for (const std::shared_ptr<Peer>& peer : peers_.All()) peer->EndNumbersFrom(actor);
  std::set<ProcAddress> senders;
  {
    MutexLock lock(drain_mu_);
    senders = sequencer_.SendersTo({self_, actor});
  }
  for (const ProcAddress& proc : senders) TellEnded(actor, proc);
  // A sender that read the actor's word before it was taken back woke this thread, which will not look again.
  Drain(words_->ThreadWord());
}

void RuntimeImpl::AnswerLeftOver(std::list<Message> left, const FailureEvent& event) {
  for (const Message& message : left) {
    if (message.header.kind == FrameKind::kStopActor) {
      AnswerEmpty(message.header);
    } else if (message.header.kind == FrameKind::kCall) {
      SendFailure(message.header, event);
    }
  }
}

void RuntimeImpl::TellOwner(const ActorInfo& info, const FailureEvent& event) {
  if (info.owner.proc.proc == 0) return;
  FrameHeader header = HeaderTo(FrameKind::kActorFailed, event.actor.actor, info.owner);
  header.rank = event.rank;
  SendEvent(header, event);
}

}  // namespace monarch
