#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/runtime_impl.h"
#include "message/bytes.h"
#include "message/control_message.h"
#include "message/hang_notice.h"
#include "message/memfd.h"

namespace monarch {
namespace {

constexpr size_t kPacketsPerTurn = 64;
// Blocks that are not many wait this long for others to go back with them.
constexpr absl::Duration kReleaseDelay = absl::Milliseconds(20);
constexpr size_t kReleasesPerFrame = 256;
// A worker whose daemon or launcher is gone has no one to report to.
constexpr absl::Duration kOrphanGrace = absl::Seconds(1);

std::string TextOr(const Value& value, const std::string& otherwise) {
  const std::string* text = value.string();
  return text == nullptr ? otherwise : *text;
}

absl::StatusOr<uint32_t> Bit(const Value& body, std::string_view key) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t bit, body[key].AsInt());
  if (bit < 0 || bit >= int64_t{kRingBits}) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(key), ": ", bit));
  }
  return static_cast<uint32_t>(bit);
}

// What follows the header: in the packet, or, where it came from another host and is large, in a memfd.
absl::StatusOr<std::string> RelayedPayload(const FrameHeader& header, const Packet& packet) {
  if (packet.fds.empty()) {
    const size_t found = packet.bytes.size() - kFrameHeaderBytes;
    if (found != ((header.flags & kFlagInSegment) != 0 ? 0 : header.payload_length))
      return absl::InvalidArgumentError("payload length");
    return packet.bytes.substr(kFrameHeaderBytes);
  }
  if (packet.fds.size() != 1 || packet.bytes.size() != kFrameHeaderBytes ||
      (header.flags & kFlagInSegment) != 0)
    return absl::InvalidArgumentError("a payload in more than one place");
  const int fd = packet.fds[0].get();
  MONARCH_RETURN_IF_ERROR(CheckSealedMemfd(fd, header.payload_length, header.payload_length).status());
  std::string payload(header.payload_length, '\0');
  for (size_t at = 0; at < payload.size();) {
    const ssize_t got = pread(fd, payload.data() + at, payload.size() - at, static_cast<off_t>(at));
    if (got <= 0) return absl::DataLossError("payload unreadable");
    at += static_cast<size_t>(got);
  }
  return payload;
}

}  // namespace

void RuntimeImpl::StartService() {
  // On the thread that made the loop; from Run on it is the service thread's.
  WatchDaemon();
  static_cast<void>(loop_->WatchFd(doorbell_->bell(), EPOLLIN, [this](uint32_t) { OnBell(); }));
  if (launcher_.fd() >= 0) {
    static_cast<void>(loop_->WatchFd(launcher_.fd(), EPOLLIN, [this](uint32_t) { OnLauncher(); }));
  }
  service_->Run();
}

void RuntimeImpl::WatchDaemon() {
  static_cast<void>(loop_->WatchFd(daemon_.fd(), EPOLLIN, [this](uint32_t events) {
    if ((events & EPOLLOUT) != 0) OnNativeWritable();
    // The daemon may be away now.
    if ((events & ~uint32_t{EPOLLOUT}) != 0) OnNative();
  }));
}

void RuntimeImpl::OnBell() {
  doorbell_->ClearBell();
  Drain(kServiceWord);
  if (blocked_peers_.load() == 0) return;
  for (const std::shared_ptr<Peer>& peer : peers_.All()) peer->Flush();
}

void RuntimeImpl::WantWrite() {
  if (write_wanted_.exchange(true)) return;
  loop_->Post([this] {
    if (!daemon_ended_ && !daemon_away_)
      static_cast<void>(loop_->UpdateWatch(daemon_.fd(), EPOLLIN | EPOLLOUT));
  });
}

void RuntimeImpl::OnNativeWritable() {
  // First: who finds no room from here on asks again.
  write_wanted_.store(false);
  if (!daemon_.Flush()) {
    write_wanted_.store(true);
    return;
  }
  static_cast<void>(loop_->UpdateWatch(daemon_.fd(), EPOLLIN));
  if (blocked_peers_.load() == 0) return;
  for (const std::shared_ptr<Peer>& peer : peers_.All()) peer->Flush();
}

void RuntimeImpl::OnNative() {
  for (size_t i = 0; i < kPacketsPerTurn && !daemon_ended_ && !daemon_away_; ++i) {
    Packet packet;
    const auto received = daemon_.Receive(&packet);
    if (!received.ok()) {
      OnDaemonEnded("monarchd ended", return_.possible());
      return;
    }
    if (!*received) return;
    OnPacket(std::move(packet));
  }
}

void RuntimeImpl::OnLauncher() {
  Packet packet;
  const auto received = launcher_.TryReceive(&packet);
  if (received.ok()) {
    if (!*received) return;
    // After boot it has nothing else to say.
    const auto message = DecodeControl(packet.bytes);
    if (message.ok() && message->type == ControlType::kStop) return OnStop(message->body);
    LogWarning("runtime", "the launcher's message is not understood");
    return;
  }
  loop_->Unwatch(launcher_.fd());
  StopProcess("the launcher has ended", kOrphanGrace, true);
}

void RuntimeImpl::OnPacket(Packet packet) {
  if (IsFramePacket(packet.bytes)) {
    OnRelayedFrame(packet);
    return;
  }
  auto message = DecodeControl(packet.bytes);
  if (!message.ok()) {
    LogWarning("runtime", "control message refused").With("status", message.status().ToString());
    return;
  }
  OnControl(*std::move(message), std::move(packet.fds));
}

void RuntimeImpl::OnControl(ControlMessage message, std::vector<ScopedFd> fds) {
  const Value& body = message.body;
  switch (message.type) {
    case ControlType::kIntroduce:
      OnIntroduce(message, std::move(fds));
      return;
    case ControlType::kUnreachable:
    case ControlType::kProcDead:
    case ControlType::kProcDetail: {
      const auto proc = ProcAddressFromValue(body["peer"]);
      const auto event = FailureEventFromValue(body["event"]);
      if (!proc.ok() || !event.ok()) break;
      if (message.type == ControlType::kProcDetail) {
        dead_.Update(*proc, *event);
      } else {
        OnProcDead(*proc, *event);
      }
      return;
    }
    case ControlType::kStop:
      OnStop(body);
      return;
    case ControlType::kGoodbye:
      OnDaemonEnded(absl::StrCat("the session has ended: ", TextOr(body["reason"], "no reason given")),
                    false);
      return;
    case ControlType::kAskInterpreter: {
      // One question at a time: the first that is not answered says for how long.
      if (doorbell_->interpreter_asked_ns() != 0) return;
      doorbell_->SetInterpreterAsked(RecentNs());
      RuntimeTask task;
      task.kind = RuntimeTask::Kind::kAskInterpreter;
      AddTask(std::move(task));
      return;
    }
    case ControlType::kHung: {
      auto notice = HangNoticeFromValue(body);
      if (!notice.ok() || notice->owner.proc != self_) break;
      std::function<void(HangNotice)> take;
      {
        MutexLock lock(mu_);
        take = take_hang_;
      }
      if (take) {
        take(*std::move(notice));
        return;
      }
      RuntimeTask task;
      task.kind = RuntimeTask::Kind::kHang;
      task.hang = *std::move(notice);
      AddTask(std::move(task));
      return;
    }
    case ControlType::kUndelivered:
      OnUndelivered(body);
      return;
    case ControlType::kRelayed: {
      const auto proc = ProcAddressFromValue(body["peer"]);
      const auto offset = body["offset"].AsInt();
      if (!proc.ok() || !offset.ok()) break;
      const std::shared_ptr<Peer> peer = peers_.Find(*proc);
      // Dead meanwhile: then everything that it held came back.
      if (peer != nullptr) static_cast<void>(segment_->Release(static_cast<uint64_t>(*offset), peer->key));
      WakeForSegment();
      return;
    }
    case ControlType::kRelayPause:
    case ControlType::kRelayResume: {
      const auto proc = ProcAddressFromValue(body["peer"]);
      if (!proc.ok()) break;
      const std::shared_ptr<Peer> peer = peers_.Find(*proc);
      // Forgotten in the meantime: it is dead, and nobody waits for it.
      if (peer != nullptr) peer->SetRelayPaused(message.type == ControlType::kRelayPause);
      return;
    }
    case ControlType::kOk:
    case ControlType::kRefused: {
      if (message.request == 0) break;
      daemon_.Answered(std::move(message));
      MutexLock lock(mu_);
      for (const uint32_t word : answer_words_) words_->Wake(word);
      return;
    }
    default:
      break;
  }
  LogWarning("runtime", "control message not understood").With("type", static_cast<int>(message.type));
}

void RuntimeImpl::OnIntroduce(const ControlMessage& message, std::vector<ScopedFd> fds) {
  const auto proc = ProcAddressFromValue(message.body["peer"]);
  if (!proc.ok() || *proc == self_ || dead_.Find(*proc).has_value()) return;
  bool created = false;
  const std::shared_ptr<Peer> peer = peers_.FindOrAdd(*proc, &created);
  if (peer->introduced()) return;
  const absl::Status introduced = Introduce(peer, message.body, std::move(fds));
  if (introduced.ok()) {
    // Marks that came before there was a ring to look at are gone.
    if (auto event = peer->EndOnBoard()) OnProcDead(*proc, *event);
    return;
  }
  MutexLock lock(drain_mu_);
  BreakLink(peer, introduced);
}

absl::Status RuntimeImpl::Introduce(const std::shared_ptr<Peer>& peer, const Value& body,
                                    std::vector<ScopedFd> fds) {
  MONARCH_ASSIGN_OR_RETURN(const std::string mode, body["mode"].AsString());
  const bool has_ring = mode == "ring";
  if (!has_ring && mode != "relay")
    return absl::InvalidArgumentError(absl::StrCat("introduction: mode ", mode));
  Peer::Introduction introduction;
  if (!has_ring && fds.empty()) {
    // On another host: no memory to share.
    peer->Introduced(std::move(introduction));
    relay_links_.fetch_add(1);
    return absl::OkStatus();
  }
  const bool has_board = has_ring && fds.size() == 5;
  if (fds.size() != (has_ring ? 4U : 3U) && !has_board) {
    return absl::InvalidArgumentError(absl::StrCat("introduction: ", fds.size(), " fds"));
  }
  MONARCH_ASSIGN_OR_RETURN(Doorbell doorbell, Doorbell::Attach(std::move(fds[0]), std::move(fds[1])));
  introduction.doorbell = std::make_shared<Doorbell>(std::move(doorbell));
  MONARCH_ASSIGN_OR_RETURN(introduction.segment, PeerSegment::Attach(std::move(fds[2])));
  if (!has_ring) {
    peer->Introduced(std::move(introduction));
    relay_links_.fetch_add(1);
    return absl::OkStatus();
  }
  if (has_board) {
    MONARCH_ASSIGN_OR_RETURN(DeathBoardView board, DeathBoardView::Attach(std::move(fds[4])));
    introduction.board = std::make_shared<DeathBoardView>(std::move(board));
    MONARCH_ASSIGN_OR_RETURN(introduction.who, FailureEventFromValue(body["who"]));
  }
  RingLinkOptions options;
  MONARCH_ASSIGN_OR_RETURN(const int64_t side, body["side"].AsInt());
  options.side = side == 0 ? 0 : side == 1 ? 1 : -1;
  MONARCH_ASSIGN_OR_RETURN(options.peer_bit, Bit(body, "peer_bit"));
  MONARCH_ASSIGN_OR_RETURN(const uint32_t local_bit, Bit(body, "local_bit"));
  introduction.local_bit = local_bit;
  MONARCH_ASSIGN_OR_RETURN(introduction.ring,
                           RingLink::Create(std::move(fds[3]), introduction.doorbell, options));
  ring_links_.fetch_add(1);
  WaitWords::Batch batch(words_.get(), kServiceWord);
  MutexLock lock(drain_mu_);
  peer->Introduced(std::move(introduction));
  if (peer->ring() == nullptr) return absl::OkStatus();  // It died meanwhile.
  ring_peers_[local_bit] = peer;
  // The peer may have been introduced first, and its news bit may have been taken before there was a ring to
  // look at.
  DrainRing(local_bit);
  return absl::OkStatus();
}

void RuntimeImpl::OnRelayedFrame(const Packet& packet) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(packet.bytes.data());
  auto header = DecodeFrameHeader({bytes, packet.bytes.size()}, std::numeric_limits<uint64_t>::max());
  absl::StatusOr<std::string> payload = std::string();
  if (header.ok()) payload = RelayedPayload(*header, packet);
  absl::Status status = header.ok() ? payload.status() : header.status();
  const std::shared_ptr<Peer> peer = status.ok() ? peers_.Find(header->sender.proc) : nullptr;
  // It died, and the daemon had this still on the way.
  if (status.ok() && peer == nullptr && dead_.Find(header->sender.proc).has_value()) return;
  if (status.ok() && (peer == nullptr || !peer->introduced())) {
    status = absl::FailedPreconditionError(
        absl::StrCat("frame from ", header->sender.ToString(), ", not introduced"));
  }
  if (!status.ok()) {
    LogWarning("runtime", "relayed frame refused").With("status", status.ToString());
    return;
  }
  WaitWords::Batch batch(words_.get(), kServiceWord);
  MutexLock lock(drain_mu_);
  const absl::Status accepted = Accept(peer, Frame{*header, *std::move(payload)});
  if (!accepted.ok()) BreakLink(peer, accepted);
}

void RuntimeImpl::OnUndelivered(const Value& body) {
  const auto bytes = body["header"].AsBytes();
  if (!bytes.ok()) return;
  const auto header = DecodeFrameHeader({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()},
                                        std::numeric_limits<uint64_t>::max());
  if (!header.ok()) return;
  const std::shared_ptr<Peer> peer = peers_.Find(header->receiver.proc);
  if (peer == nullptr) return;
  if ((header->flags & kFlagInSegment) != 0) {
    static_cast<void>(segment_->Release(header->segment_offset, peer->key));
    WakeForSegment();
  }
  // The receiver holds back what follows.
  FrameHeader filler = HeaderTo(FrameKind::kReply, header->sender.actor, header->receiver);
  filler.flags = kFlagReply;
  filler.flags |= header->flags & (kFlagFirst | kFlagLast);
  filler.sequence = header->sequence;
  static_cast<void>(peer->Enqueue(filler, {}));
  if (header->port_id == 0) {
    // An empty answer without a port is such a filler itself; all else is somebody's message.
    if (header->kind != FrameKind::kReply) {
      LogWarning("runtime", "message lost on its way through the daemon")
          .With("receiver", header->receiver.ToString())
          .With("reason", TextOr(body["message"], "no reason given"));
    }
    return;
  }
  FailureEvent event;
  const auto code = body["code"].AsInt();
  const bool full = code.ok() && *code == static_cast<int64_t>(absl::StatusCode::kResourceExhausted);
  event.kind = full ? FailureKind::kException : FailureKind::kUnreachable;
  event.reason = absl::StrCat("not delivered: ", TextOr(body["message"], "no reason given"));
  calls_.Fail(header->port_id, header->rank, EventFor(event, header->receiver), true);
}

void RuntimeImpl::EndLateCalls() {
  // First: whoever opens a call that the look at the deadlines misses finds this, and asks for another look.
  late_calls_at_ns_ = CallTable::kNoDeadline;
  const int64_t now_ns = absl::ToInt64Nanoseconds(SystemClock().Now());
  for (const CallTable::GivenUp& call : calls_.TakeLate(now_ns)) {
    // First, so that they know before the caller's next message.
    SendCancels(call.inbox->id(), call.owner, call.unanswered);
    calls_.TellLate(call);
  }
  loop_->Cancel(late_calls_timer_);
  const int64_t next_ns = calls_.NextDeadline();
  if (next_ns == CallTable::kNoDeadline) return;
  late_calls_at_ns_ = next_ns;
  late_calls_timer_ = loop_->RunAfter(absl::Nanoseconds(next_ns) - loop_->Now(), [this] { EndLateCalls(); });
}

void RuntimeImpl::ReleaseSoon(bool at_once) {
  if (at_once) {
    SendReleases();
  } else {
    loop_->RunAfter(kReleaseDelay, [this] { SendReleases(); });
  }
}

void RuntimeImpl::SendReleases() {
  for (const auto& [proc, offsets] : releases_->Take()) {
    if (dead_.Find(proc).has_value()) continue;
    for (size_t at = 0; at < offsets.size(); at += kReleasesPerFrame) {
      const size_t count = std::min(kReleasesPerFrame, offsets.size() - at);
      const auto* bytes = reinterpret_cast<const uint8_t*>(offsets.data() + at);
      static_cast<void>(SendQuietly(HeaderTo(FrameKind::kRelease, kAgentActor, {proc, kAgentActor}), {},
                                    {bytes, count * sizeof(uint64_t)}));
    }
  }
}

void RuntimeImpl::OnStop(const Value& body) {
  const bool session_ends = body["session_ends"].AsBool().value_or(false);
  const std::string reason = TextOr(body["reason"], "stopped");
  StopProcess(session_ends ? absl::StrCat("the session ends: ", reason) : reason,
              absl::Milliseconds(body["grace_ms"].AsInt().value_or(limits_.stop_grace_ms)), session_ends);
}

void RuntimeImpl::StopProcess(const std::string& reason, absl::Duration grace, bool session_ends) {
  // What was sent to its actors before comes before their stop.
  Drain(kServiceWord);
  {
    MutexLock lock(mu_);
    if (std::exchange(stopping_, true)) return;
  }
  RuntimeTask task;
  task.kind = RuntimeTask::Kind::kStopProcess;
  task.reason = reason;
  task.grace = grace;
  task.session_ends = session_ends;
  AddTask(std::move(task));
}

void RuntimeImpl::AddTask(RuntimeTask task) {
  std::vector<uint32_t> words;
  {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
    words = task_words_;
  }
  for (const uint32_t word : words) words_->Wake(word);
}

}  // namespace monarch
