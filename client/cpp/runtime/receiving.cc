#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/frame_rules.h"
#include "client/cpp/runtime/runtime_impl.h"
#include "message/bytes.h"
#include "message/control_message.h"

namespace monarch {
namespace {

// Frames taken from one ring before the others get their turn.
constexpr size_t kFramesPerTurn = 256;
constexpr size_t kTurnsMax = 16;

}  // namespace

void RuntimeImpl::Drain(uint32_t own_word) {
  if (!doorbell_->HasNews()) return;
  // Outlives the lock: who is woken may want it.
  WaitWords::Batch batch(words_.get(), own_word);
  std::vector<FailureEvent> deaths;
  {
    MutexLock lock(drain_mu_);
    DrainRings();
    FindDead(&deaths);
  }
  for (const FailureEvent& event : deaths) OnProcDead(event.actor.proc, event);
}

void RuntimeImpl::DrainRings() {
  uint64_t news[kRingBits / 64];
  if (!doorbell_->TakeNews(news)) return;
  for (uint32_t bit = 0; bit < kRingBits; ++bit) {
    if ((news[bit / 64] >> (bit % 64) & 1) != 0) DrainRing(bit);
  }
}

void RuntimeImpl::FindDead(std::vector<FailureEvent>* deaths) {
  uint64_t bits[kRingBits / 64];
  if (!doorbell_->TakePeerDead(bits)) return;
  for (uint32_t bit = 0; bit < kRingBits; ++bit) {
    if ((bits[bit / 64] >> (bit % 64) & 1) == 0 || ring_peers_[bit] == nullptr) continue;
    // Any process of the session can set the bit; only the launcher can write the board.
    if (auto event = ring_peers_[bit]->EndOnBoard()) deaths->push_back(*std::move(event));
  }
}

void RuntimeImpl::DrainRing(uint32_t bit) {
  for (size_t turn = 0; turn < kTurnsMax; ++turn) {
    const std::shared_ptr<Peer> peer = ring_peers_[bit];
    if (peer == nullptr) return;
    absl::Status accepted;
    const auto taken =
        peer->ring()->Receive(kFramesPerTurn, [&](Frame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mu_) {
          if (accepted.ok()) accepted = Accept(peer, std::move(frame));
        });
    if (!accepted.ok() || !taken.ok()) {
      BreakLink(peer, accepted.ok() ? taken.status() : accepted);
      return;
    }
    if (*taken < kFramesPerTurn) return;
  }
  // A producer that keeps up with us must not keep this thread for ever; the service thread goes on.
  doorbell_->Ring(bit, kServiceWord, false);
}

absl::Status RuntimeImpl::Accept(const std::shared_ptr<Peer>& peer, Frame frame) {
  const FrameHeader& header = frame.header;
  if (header.session != session_) return absl::InvalidArgumentError("frame of another session");
  if (header.sender.proc != peer->address) {
    return absl::InvalidArgumentError(absl::StrCat("frame from ", header.sender.ToString()));
  }
  if (header.receiver.proc != self_) {
    return absl::InvalidArgumentError(absl::StrCat("frame for ", header.receiver.ToString()));
  }
  // A probe says that what its process answered before has arrived, and what is held back has not. There is
  // another search later.
  const bool held = sequencer_.held() > 0 && sequencer_.HoldsFrom(frame.header.sender.proc);
  return sequencer_.Accept(std::move(frame), [&](Frame next) {
    if (held && next.header.kind == FrameKind::kProbe) return;
    ReceiveFrame(peer, std::move(next));
  });
}

void RuntimeImpl::ReceiveFrame(const std::shared_ptr<Peer>& peer, Frame frame) {
  frames_received_.fetch_add(1, std::memory_order_relaxed);
  const FrameHeader header = frame.header;
  const bool begins = (header.flags & (kFlagFirst | kFlagLast)) == kFlagFirst;
  if (begins && !actors_.IsLive(header.receiver.actor)) TellEnded(header.receiver.actor, header.sender.proc);
  auto message = ToMessage(peer, std::move(frame));
  if (!message.ok()) {
    LogWarning("runtime", "frame refused")
        .With("from", header.sender.ToString())
        .With("status", message.status().ToString());
    if (IsToPort(header.kind)) {
      // An answer that cannot be read is still an answer.
      FailureEvent event;
      event.kind = FailureKind::kException;
      event.reason = absl::StrCat("the answer was not readable: ", message.status().message());
      calls_.Fail(header.port_id, header.rank, EventFor(event, header.sender), true);
      return;
    }
    FailureEvent event;
    event.kind = FailureKind::kException;
    event.reason = absl::StrCat("message refused: ", message.status().message());
    SendFailure(header, EventFor(event, header.receiver));
    return;
  }
  if (header.receiver.actor == kAgentActor && !IsToPort(header.kind)) {
    DeliverToProc(peer, *std::move(message));
  } else {
    Deliver(*std::move(message));
  }
}

absl::StatusOr<Message> RuntimeImpl::ToMessage(const std::shared_ptr<Peer>& peer, Frame frame) {
  Message message;
  message.header = frame.header;
  const FrameHeader& header = message.header;
  if (header.payload_length == 0) return message;
  if ((header.flags & kFlagInSegment) != 0) {
    const std::shared_ptr<PeerSegment> segment = peer->segment();
    if (segment == nullptr) return absl::FailedPreconditionError("its sender has no segment");
    MONARCH_ASSIGN_OR_RETURN(absl::Span<uint8_t> block,
                             segment->At(header.segment_offset, header.payload_length));
    message.payload = BorrowPayload(segment, block, header.segment_offset, peer->address,
                                    (header.flags & kFlagShared) != 0, releases_);
  } else {
    message.payload =
        CopyPayload({reinterpret_cast<const uint8_t*>(frame.payload.data()), frame.payload.size()});
  }
  MONARCH_ASSIGN_OR_RETURN(message.view, PayloadView::Parse(message.payload->bytes()));
  return message;
}

void RuntimeImpl::Deliver(Message message) {
  const FrameHeader header = message.header;
  if (IsToPort(header.kind)) {
    bool pause = false;
    const std::shared_ptr<Inbox> inbox = calls_.Deliver(std::move(message), &pause);
    if (pause) TellPause(*inbox, header);
    return;
  }
  if (header.receiver.actor == kAgentActor) {
    DeliverToProc(nullptr, std::move(message));
    return;
  }
  DeliverToActor(std::move(message));
}

void RuntimeImpl::DeliverToActor(Message message) {
  const FrameHeader header = message.header;
  const std::shared_ptr<Inbox> mailbox = actors_.Mailbox(header.receiver.actor);
  if (header.kind == FrameKind::kCancel) {
    if (mailbox != nullptr) mailbox->Cancel(std::move(message));
    return;
  }
  if (mailbox != nullptr) {
    const Inbox::Pushed pushed = mailbox->Push(std::move(message));
    if (pushed.pause) TellPause(*mailbox, header);
    if (pushed.accepted) return;
  }
  if (header.kind == FrameKind::kStopActor) {
    // It is gone, which is all that was asked for.
    AnswerEmpty(header);
    return;
  }
  FailureEvent event;
  if (auto end = actors_.EndOf(header.receiver.actor)) {
    event = *std::move(end);
  } else {
    event.kind = FailureKind::kStopped;
    event.reason = "no such actor";
    event = EventFor(event, header.receiver);
    event.host_name = host_name_;
  }
  SendFailure(header, event);
}

void RuntimeImpl::AnswerEmpty(const FrameHeader& request) {
  if (request.port_id != 0) static_cast<void>(SendQuietly(AnswerTo(request, FrameKind::kReply), {}));
}

void RuntimeImpl::TellPause(const Inbox& inbox, const FrameHeader& cause) {
  // Threads of this process wait for room themselves.
  if (cause.sender.proc == self_) return;
  FrameHeader header = HeaderTo(FrameKind::kPause, kAgentActor, {cause.sender.proc, kAgentActor});
  header.call_id = cause.receiver.actor;
  static_cast<void>(SendQuietly(header, {}));
  // Emptied in the meantime: that resume may have gone out before this pause.
  if (!inbox.IsPaused(cause.sender.proc)) TellResume(cause.receiver.actor, {cause.sender.proc});
}

void RuntimeImpl::TellResume(uint64_t actor, const std::vector<ProcAddress>& procs) {
  for (const ProcAddress& proc : procs) {
    if (proc == self_) continue;
    FrameHeader header = HeaderTo(FrameKind::kResume, kAgentActor, {proc, kAgentActor});
    header.call_id = actor;
    static_cast<void>(SendQuietly(header, {}));
  }
}

void RuntimeImpl::TellEnded(uint64_t actor, const ProcAddress& proc) {
  FrameHeader header = HeaderTo(FrameKind::kActorEnded, kAgentActor, {proc, kAgentActor});
  header.call_id = actor;
  static_cast<void>(SendQuietly(header, {}));
}

void RuntimeImpl::DeliverToProc(const std::shared_ptr<Peer>& peer, Message message) {
  switch (message.header.kind) {
    case FrameKind::kCreate:
      CreateActor(std::move(message));
      return;
    case FrameKind::kPause:
    case FrameKind::kResume:
      if (peer != nullptr) peer->SetPaused(message.header.call_id, message.header.kind == FrameKind::kPause);
      return;
    case FrameKind::kProbe:
      deadlocks_.Receive(message);
      return;
    case FrameKind::kRelease:
      if (peer != nullptr) ReleaseBlocks(peer.get(), message);
      return;
    case FrameKind::kActorEnded:
      if (peer != nullptr) peer->EndNumbersTo(message.header.call_id);
      return;
    case FrameKind::kOrphaned:
      if (auto event = DecodeFailureEvent(message.view.meta); event.ok()) {
        event->actor = {message.header.sender.proc, message.header.call_id};
        calls_.FailActor(event->actor, *event);
      }
      return;
    default:
      FailureEvent event;
      event.kind = FailureKind::kStopped;
      event.reason =
          absl::StrCat("frames of kind ", static_cast<int>(message.header.kind), " are not for a process");
      SendFailure(message.header, EventFor(event, message.header.receiver));
  }
}

void RuntimeImpl::ReleaseBlocks(Peer* peer, const Message& message) {
  if (message.view.parts.size() != 1) return;
  const absl::Span<uint8_t> offsets = message.view.parts.front();
  for (size_t at = 0; at + sizeof(uint64_t) <= offsets.size(); at += sizeof(uint64_t)) {
    const absl::Status released = segment_->Release(LoadLe<uint64_t>(offsets.data() + at), peer->key);
    if (!released.ok()) {
      LogWarning("runtime", "block given back by who does not hold it")
          .With("peer", peer->address.ToString());
      return;
    }
  }
  WakeForSegment();
}

void RuntimeImpl::WakeForSegment() {
  std::vector<uint32_t> words;
  {
    MutexLock lock(mu_);
    words = std::exchange(segment_words_, {});
  }
  for (const uint32_t word : words) words_->Wake(word);
}

}  // namespace monarch
