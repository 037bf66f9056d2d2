#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/frame_rules.h"
#include "client/cpp/runtime/runtime_impl.h"
#include "message/control_message.h"
#include "message/ring.h"

namespace monarch {
namespace {

absl::Span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Patience UntilSignal(const Outgoing& payload) {
  return {.ends_on_signal = true, .sleep_max = payload.sleep_max, .waited = payload.waited};
}

// Longest text of an event that is sent when there is no room for all of it.
constexpr size_t kTrimmedTextMax = 256;

FailureEvent Trimmed(const FailureEvent& event) {
  FailureEvent out = event;
  for (std::string* text : {&out.reason, &out.actor_class, &out.mesh, &out.rank_label, &out.host_name}) {
    text->resize(std::min(text->size(), kTrimmedTextMax));
  }
  out.stderr_tail.clear();
  out.traceback.clear();
  out.backtrace.clear();
  out.cause.clear();
  return out;
}

}  // namespace

absl::Span<const uint8_t> PreparedPayload::inline_bytes() const {
  return block.has_value() ? absl::Span<const uint8_t>() : AsBytes(bytes);
}

absl::Status RuntimeImpl::SleepForRoom(absl::FunctionRef<bool()> ready, Patience patience) {
  // The usual case needs no clock.
  if (ready()) return absl::OkStatus();
  const uint32_t word = words_->ThreadWord();
  const SystemClock clock;
  absl::Duration deadline = clock.Now() + absl::Milliseconds(limits_.send_wait_ms) - patience.waited;
  if (patience.deadline_ns != 0) deadline = std::min(deadline, absl::Nanoseconds(patience.deadline_ns));
  const auto sleep = [&](absl::Duration limit) {
    return words_->SleepUntil(
        ready, [&] { Drain(word); }, false, limit);
  };
  if (patience.ends_on_signal) {
    const absl::Duration left = deadline - clock.Now();
    const absl::Status status = sleep(std::min(left, patience.sleep_max));
    if (absl::IsDeadlineExceeded(status) && left > patience.sleep_max) {
      return absl::CancelledError("wait for room: sleep_max");
    }
    return status;
  }
  absl::Status status;
  do {
    status = sleep(deadline - clock.Now());
  } while (absl::IsCancelled(status));
  return status;
}

absl::StatusOr<PreparedPayload> RuntimeImpl::Prepare(const Outgoing& payload, size_t remote_targets,
                                                     Patience patience) {
  PreparedPayload prepared;
  prepared.kind = payload.kind;
  if (payload.parts.size() > kPayloadPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", payload.parts.size(), " parts, at most ", kPayloadPartsMax));
  }
  if (payload.meta.size() > kPayloadMetaBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("message with ", payload.meta.size(),
                                                   " bytes of names, at most ", kPayloadMetaBytesMax));
  }
  if (payload.meta.empty() && payload.parts.empty()) return prepared;
  const PayloadWriter writer(payload.meta, payload.parts);
  prepared.length = writer.size();
  if (remote_targets == 0) return prepared;
  if (prepared.length < static_cast<uint64_t>(limits_.frame_inline_bytes_max)) {
    prepared.bytes.resize(prepared.length);
    writer.WriteTo(reinterpret_cast<uint8_t*>(prepared.bytes.data()));
    return prepared;
  }
  if (prepared.length > segment_->size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("message of ", prepared.length, " bytes, segment_bytes_max=", segment_->size()));
  }
  const uint32_t word = words_->ThreadWord();
  absl::Status refused;
  const absl::Status slept = SleepForRoom(
      [&] {
        {  // First, so that a block that comes back after the look wakes this thread.
          MutexLock lock(mu_);
          segment_words_.push_back(word);
        }
        auto block = segment_->Allocate(prepared.length, static_cast<uint32_t>(remote_targets));
        if (block.ok()) prepared.block = *block;
        refused = block.status();
        return block.ok();
      },
      patience);
  {
    MutexLock lock(mu_);
    std::erase(segment_words_, word);
  }
  if (!slept.ok()) return absl::IsDeadlineExceeded(slept) ? refused : slept;
  writer.WriteTo(segment_->data() + *prepared.block);
  prepared.flags = kFlagInSegment;
  if (remote_targets > 1) prepared.flags |= kFlagShared;
  return prepared;
}

absl::StatusOr<std::shared_ptr<Peer>> RuntimeImpl::PeerFor(const ProcAddress& proc, FailureEvent* event) {
  if (auto known = dead_.Find(proc)) {
    *event = *std::move(known);
    return absl::NotFoundError("the receiver's process is dead");
  }
  if (daemon_ended_ && is_client_) {
    *event = DaemonEnded({proc, 0});
    return absl::NotFoundError("monarchd has ended");
  }
  bool created = false;
  std::shared_ptr<Peer> peer = peers_.FindOrAdd(proc, &created);
  if (!created) return peer;
  const absl::Status asked = daemon_.Send({ControlType::kConnect, 0, Value::Map{{"peer", ToValue(proc)}}});
  if (asked.ok()) return peer;
  peers_.Remove(proc);
  *event = DaemonEnded({proc, 0});
  event->reason = std::string(asked.message());
  return absl::NotFoundError("no way to the receiver's process");
}

absl::Status RuntimeImpl::SendRemote(const FrameHeader& header, const PreparedPayload& prepared,
                                     Patience patience, FailureEvent* event) {
  auto found = PeerFor(header.receiver.proc, event);
  if (!found.ok()) {
    if (prepared.block.has_value()) segment_->Forgo(*prepared.block);
    return found.status();
  }
  const std::shared_ptr<Peer> peer = *std::move(found);
  // Before the frame is out: the receiver may give the block back at once.
  if (prepared.block.has_value()) segment_->Lend(*prepared.block, peer->key);
  const uint32_t word = words_->ThreadWord();
  Peer::Outcome outcome = Peer::Outcome::kBlocked;
  const absl::Status slept = SleepForRoom(
      [&] {
        outcome = peer->Offer(header, prepared.inline_bytes(), word);
        return outcome != Peer::Outcome::kBlocked;
      },
      patience);
  if (outcome == Peer::Outcome::kSent) return absl::OkStatus();
  peer->ForgetWaiter(word);
  // InvalidArgument: it died in the meantime, and everything that it held came back.
  if (prepared.block.has_value()) static_cast<void>(segment_->Release(*prepared.block, peer->key));
  if (outcome == Peer::Outcome::kGone) {
    *event = peer->gone_event();
    return absl::NotFoundError("the receiver's process is gone");
  }
  if (!absl::IsDeadlineExceeded(slept)) return slept;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room at ", header.receiver.ToString(), " within send_wait_ms=", limits_.send_wait_ms,
      ": its mailbox (mailbox_bytes_max=", limits_.mailbox_bytes_max,
      ", mailbox_messages_max=", limits_.mailbox_messages_max, ") or the way to it (a ring of ", kRingBytes,
      " bytes, relay_pause_bytes=", limits_.relay_pause_bytes, " at a daemon) is full"));
}

absl::Status RuntimeImpl::SendLocal(FrameHeader header, const Outgoing& payload, Patience patience) {
  Message message;
  message.header = header;
  if (!payload.meta.empty() || !payload.parts.empty()) {
    const PayloadWriter writer(payload.meta, payload.parts);
    std::string bytes(writer.size(), '\0');
    writer.WriteTo(reinterpret_cast<uint8_t*>(bytes.data()));
    message.payload = CopyPayload(AsBytes(bytes));
    MONARCH_ASSIGN_OR_RETURN(message.view, PayloadView::Parse(message.payload->bytes()));
    message.header.payload_length = bytes.size();
  }
  frames_sent_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Inbox> bounded;
  if (header.kind == FrameKind::kPortMessage) {
    bounded = calls_.Port(header.receiver.actor, header.port_id);
  } else if (IsHeldBack(header.kind)) {
    bounded = actors_.Mailbox(header.receiver.actor);
  }
  if (bounded == nullptr) {
    Deliver(std::move(message));
    return absl::OkStatus();
  }
  const uint32_t word = words_->ThreadWord();
  bool closed = false;
  const absl::Status slept =
      SleepForRoom([&] { return bounded->PushIfRoom(message, word, &closed) || closed; }, patience);
  if (closed) Deliver(std::move(message));  // Answers in the actor's place.
  if (!absl::IsDeadlineExceeded(slept)) return slept;
  return absl::ResourceExhaustedError(
      absl::StrCat("no room at ", header.receiver.ToString(), " within send_wait_ms=", limits_.send_wait_ms,
                   ": its mailbox is full (mailbox_bytes_max=", limits_.mailbox_bytes_max,
                   ", mailbox_messages_max=", limits_.mailbox_messages_max, ")"));
}

absl::Status RuntimeImpl::SendOne(FrameHeader header, const PreparedPayload& prepared,
                                  const Outgoing& payload, Patience patience, FailureEvent* event) {
  header.payload_kind = prepared.kind;
  if (header.receiver.proc == self_) return SendLocal(header, payload, patience);
  header.flags |= prepared.flags;
  header.payload_length = prepared.length;
  header.segment_offset = prepared.block.value_or(0);
  return SendRemote(header, prepared, patience, event);
}

absl::Status RuntimeImpl::Send(uint64_t sender, FrameKind kind, absl::Span<const CallTarget> targets,
                               const Outgoing& payload, Inbox* call) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  const auto is_remote = [&](const CallTarget& target) { return target.actor.proc != self_; };
  const auto remote = static_cast<size_t>(std::count_if(targets.begin(), targets.end(), is_remote));
  if (call != nullptr && calls_.size() > static_cast<size_t>(limits_.calls_pending_max)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("calls_pending_max=", limits_.calls_pending_max, " is reached"));
  }
  uint32_t reply_word = kServiceWord;
  uint64_t id = 0;
  Patience patience = UntilSignal(payload);
  if (call != nullptr) {
    MutexLock lock(call->mu_);
    reply_word = call->rung_word_;
    id = call->id();
    patience.deadline_ns = call->deadline_ns_;
  }
  const absl::StatusOr<PreparedPayload> made = Prepare(payload, remote, patience);
  // Too late: then its maker hears that.
  if (!made.ok()) return HasPassed(patience.deadline_ns) ? absl::OkStatus() : made.status();
  const PreparedPayload& prepared = *made;
  const auto forgo_from = [&](size_t first) {
    for (size_t i = first; prepared.block.has_value() && i < targets.size(); ++i) {
      if (is_remote(targets[i])) segment_->Forgo(*prepared.block);
    }
  };
  if (call != nullptr && !calls_.Expect(*call, targets) && call->given_up_) {
    forgo_from(0);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (call != nullptr && call->given_up_) {
      forgo_from(i);
      break;
    }
    FrameHeader header = HeaderTo(kind, sender, targets[i].actor);
    header.call_id = id;
    header.port_id = id;
    header.reply_word = reply_word;
    header.rank = targets[i].rank;
    if (targets[i].actor.proc.host == self_.host) header.deadline_ns = patience.deadline_ns;
    if (kind == FrameKind::kStopActor) header.flags |= kFlagUrgent;
    FailureEvent event;
    // After the first there is no taking back, so a signal has to wait until the rest is out.
    patience.ends_on_signal = i == 0;
    const absl::Status status = SendOne(header, prepared, payload, patience, &event);
    if (absl::IsNotFound(status)) {
      if (call != nullptr) calls_.Fail(id, targets[i].rank, EventFor(event, targets[i].actor), true);
      continue;
    }
    if (status.ok()) continue;
    // This one's share of the block went back with its failure; the others' will never be lent.
    forgo_from(i + 1);
    if (HasPassed(patience.deadline_ns) || (call != nullptr && call->given_up_)) break;
    if (call != nullptr) calls_.Unexpect(*call, targets.subspan(i));
    return status;
  }
  // Given up meanwhile: what was told to whoever had no frame yet came before it.
  if (call != nullptr && call->given_up_) SendCancels(id, sender, targets);
  return absl::OkStatus();
}

absl::Status RuntimeImpl::SendToPort(uint64_t sender, const ActorAddress& receiver, uint64_t port_id,
                                     uint32_t rank, FrameKind kind, const Outgoing& payload) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  if (port_id == 0) return absl::InvalidArgumentError("port 0: the message asked for no answer");
  MONARCH_ASSIGN_OR_RETURN(const PreparedPayload prepared,
                           Prepare(payload, receiver.proc == self_ ? 0 : 1, UntilSignal(payload)));
  FrameHeader header = HeaderTo(kind, sender, receiver);
  header.port_id = port_id;
  header.call_id = port_id;
  header.rank = rank;
  FailureEvent event;
  const absl::Status status = SendOne(header, prepared, payload, UntilSignal(payload), &event);
  if (absl::IsNotFound(status)) return absl::UnavailableError(EventFor(event, receiver).Summary());
  return status;
}

absl::Status RuntimeImpl::Reply(const Message& request, FrameKind kind, const Outgoing& answer) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  if (request.header.port_id == 0) return absl::OkStatus();
  const ActorAddress& receiver = request.header.sender;
  // An answer is owed: a signal only makes it late.
  MONARCH_ASSIGN_OR_RETURN(const PreparedPayload prepared,
                           Prepare(answer, receiver.proc == self_ ? 0 : 1, Patience{}));
  FailureEvent event;
  const absl::Status status = SendOne(AnswerTo(request.header, kind), prepared, answer, Patience{}, &event);
  // Nobody is left to hear it.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

bool RuntimeImpl::SendQuietly(FrameHeader header, std::string_view meta, absl::Span<const uint8_t> part) {
  const absl::Span<const absl::Span<const uint8_t>> parts(&part, part.empty() ? 0 : 1);
  if (header.receiver.proc == self_) {
    Deliver(MakeMessage(header, meta));
    return true;
  }
  FailureEvent event;
  auto peer = PeerFor(header.receiver.proc, &event);
  if (!peer.ok()) return true;
  std::string bytes;
  if (!meta.empty() || !part.empty()) {
    const PayloadWriter writer(meta, parts);
    header.payload_length = writer.size();
    if (writer.size() >= static_cast<uint64_t>(limits_.frame_inline_bytes_max)) {
      const auto block = segment_->Allocate(writer.size(), 1);
      if (!block.ok()) return false;
      writer.WriteTo(segment_->data() + *block);
      segment_->Lend(*block, (*peer)->key);
      header.flags |= kFlagInSegment;
      header.segment_offset = *block;
    } else {
      bytes.resize(writer.size());
      writer.WriteTo(reinterpret_cast<uint8_t*>(bytes.data()));
    }
  }
  if ((*peer)->Enqueue(header, std::move(bytes))) return true;
  if ((header.flags & kFlagInSegment) != 0) {
    static_cast<void>(segment_->Release(header.segment_offset, (*peer)->key));
  }
  // Gone, or it reads nothing while answers for it pile up: then it is cut off, for its calls hang anyway.
  loop_->Post([this, peer = *peer] {
    MutexLock lock(drain_mu_);
    BreakLink(peer, absl::ResourceExhaustedError("it does not read what it asked for"));
  });
  return true;
}

void RuntimeImpl::SendEvent(const FrameHeader& header, const FailureEvent& event) {
  if (SendQuietly(header, EncodeFailureEvent(event))) return;
  static_cast<void>(SendQuietly(header, EncodeFailureEvent(Trimmed(event))));
}

void RuntimeImpl::SendFailure(const FrameHeader& request, const FailureEvent& event) {
  if (request.port_id != 0) SendEvent(AnswerTo(request, FrameKind::kFailure), event);
}

void RuntimeImpl::SendCancels(uint64_t call, uint64_t caller, absl::Span<const CallTarget> targets) {
  for (const CallTarget& target : targets) {
    if (target.actor.actor == kAgentActor) continue;  // What a process is asked for is not queued.
    FrameHeader header = HeaderTo(FrameKind::kCancel, caller, target.actor);
    header.flags = kFlagUrgent;
    header.call_id = call;
    static_cast<void>(SendQuietly(header, {}));
  }
}

}  // namespace monarch
