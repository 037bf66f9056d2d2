#include "client/cpp/runtime/peer.h"

#include <sys/wait.h>

#include <algorithm>

#include "base/clock.h"
#include "client/cpp/runtime/frame_rules.h"

namespace monarch {
namespace {

// What senders may leave behind before the introduction, without waiting.
constexpr size_t kEarlyBytesMax = 1 << 20;
// What the runtime itself may leave: answers, failures, releases. A peer that makes us pile up more does not
// read.
constexpr size_t kQueueBytesMax = 64 << 20;
constexpr size_t kWordHintsMax = 4096;

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

uint32_t Peer::WordFor(const FrameHeader& header) {
  if (IsToPort(header.kind) && header.reply_word != kServiceWord) return header.reply_word;
  const uint64_t actor = header.receiver.actor;
  if (actor == kAgentActor) return kServiceWord;
  if (word_hints_.size() > kWordHintsMax) word_hints_.clear();
  uint32_t& hint = word_hints_[actor];
  hint = path_.doorbell->WordOf(actor, hint);
  return hint;
}

Peer::Outcome Peer::Push(const FrameHeader& header, absl::Span<const uint8_t> payload) {
  FrameHeader numbered = header;
  const Pair pair(header.sender.actor, header.receiver.actor);
  const auto known = sequences_.find(pair);
  // One that has a number already takes the place of a frame that was lost under way.
  const bool is_new = header.sequence == 0;
  if (is_new && known == sequences_.end()) {
    if ((header.flags & kFlagLast) != 0) return Outcome::kSent;  // They have ended.
    numbered.sequence = forgotten_max_ + 1;
    numbered.flags |= kFlagFirst;
    // Nobody will end them later.
    if (!shared_.actors->IsLive(header.sender.actor)) numbered.flags |= kFlagLast;
  } else if (is_new) {
    numbered.sequence = known->second + 1;
  }
  const auto word = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return WordFor(header); };
  const auto sent = path_.ring != nullptr ? path_.ring->TrySendAndRing(numbered, payload, word)
                                          : shared_.daemon->TrySendFrame(numbered, payload);
  if (!sent.ok()) return Outcome::kGone;
  if (*sent == SendResult::kFull) return Outcome::kBlocked;
  if (is_new && (numbered.flags & kFlagLast) != 0) {
    forgotten_max_ = std::max(forgotten_max_, numbered.sequence);
    if (known != sequences_.end()) sequences_.erase(known);
  } else if (is_new) {
    sequences_[pair] = numbered.sequence;
  }
  if (path_.ring != nullptr && !IsToPort(header.kind) && header.reply_word != kServiceWord) {
    shared_.doorbell->NoteCaller(path_.local_bit, header.reply_word);
  }
  shared_.frames_sent->fetch_add(1, std::memory_order_relaxed);
  return Outcome::kSent;
}

bool Peer::FlushQueue() {
  while (!queue_.empty()) {
    const Queued& next = queue_.front();
    const Outcome outcome = Push(next.header, AsBytes(next.payload));
    if (outcome == Outcome::kBlocked) return false;
    queue_bytes_ -= next.payload.size() + sizeof(Queued);
    queue_.pop_front();
  }
  return true;
}

bool Peer::AskForRoom(uint32_t word) {
  // Through the daemon: Flush comes with the socket's room anyway.
  return path_.ring == nullptr || path_.ring->RequestRoomSignal(word);
}

void Peer::AddWaiter(uint32_t word) {
  if (std::find(waiters_.begin(), waiters_.end(), word) == waiters_.end()) waiters_.push_back(word);
}

void Peer::CountBlocked() {
  const bool blocked = !waiters_.empty() || !queue_.empty();
  if (blocked == counted_) return;
  counted_ = blocked;
  if (blocked) {
    shared_.blocked->fetch_add(1);
  } else {
    shared_.blocked->fetch_sub(1);
  }
}

Peer::Outcome Peer::Offer(const FrameHeader& header, absl::Span<const uint8_t> payload, uint32_t word) {
  MutexLock lock(mu_);
  if (state_ == State::kGone) return Outcome::kGone;
  if (IsHeldBack(header.kind) && (relay_pauses_ > 0 || paused_.contains(header.receiver.actor))) {
    AddWaiter(word);
    CountBlocked();
    return Outcome::kBlocked;
  }
  if (state_ == State::kConnecting) {
    if (queue_bytes_ < kEarlyBytesMax) {
      Append(header, {reinterpret_cast<const char*>(payload.data()), payload.size()});
      return Outcome::kSent;
    }
    AddWaiter(word);
    CountBlocked();
    return Outcome::kBlocked;
  }
  while (true) {
    const Outcome outcome = FlushQueue() ? Push(header, payload) : Outcome::kBlocked;
    if (outcome != Outcome::kBlocked) {
      CountBlocked();
      return outcome;
    }
    AddWaiter(word);
    CountBlocked();
    // The consumer rings one word. With more than this thread waiting it is the bell, and Flush wakes all.
    const bool alone = waiters_.size() == 1 && queue_.empty();
    if (AskForRoom(alone ? word : kServiceWord)) return Outcome::kBlocked;
  }
}

void Peer::ForgetWaiter(uint32_t word) {
  MutexLock lock(mu_);
  std::erase(waiters_, word);
  CountBlocked();
}

void Peer::Append(const FrameHeader& header, std::string payload) {
  queue_bytes_ += payload.size() + sizeof(Queued);
  queue_.push_back({header, std::move(payload)});
  CountBlocked();
}

bool Peer::Enqueue(const FrameHeader& header, std::string payload) {
  MutexLock lock(mu_);
  if (state_ == State::kGone || queue_bytes_ > kQueueBytesMax) return false;
  Append(header, std::move(payload));
  if (state_ != State::kOpen) return true;
  while (!FlushQueue() && !AskForRoom(kServiceWord)) continue;
  CountBlocked();
  return true;
}

void Peer::Flush() {
  MutexLock lock(mu_);
  if (!counted_ || state_ != State::kOpen) return;
  while (!FlushQueue() && !AskForRoom(kServiceWord)) continue;
  if (queue_.empty()) WakeWaiters();
  CountBlocked();
}

void Peer::WakeWaiters() {
  // They add themselves again if it was not for them.
  for (const uint32_t word : std::exchange(waiters_, {})) shared_.waker->Wake(word);
}

void Peer::Introduced(Introduction introduction) {
  MutexLock lock(mu_);
  if (state_ != State::kConnecting) return;
  state_ = State::kOpen;
  path_ = std::move(introduction);
  while (!FlushQueue() && !AskForRoom(kServiceWord)) continue;
  WakeWaiters();
  CountBlocked();
}

bool Peer::introduced() const {
  MutexLock lock(mu_);
  return state_ != State::kConnecting;
}

std::shared_ptr<RingLink> Peer::ring() const {
  MutexLock lock(mu_);
  return path_.ring;
}

std::shared_ptr<PeerSegment> Peer::segment() const {
  MutexLock lock(mu_);
  return path_.segment;
}

std::optional<FailureEvent> Peer::EndOnBoard() const {
  MutexLock lock(mu_);
  const std::optional<int> status = path_.board == nullptr ? std::nullopt : path_.board->EndOf(address);
  if (!status) return std::nullopt;
  FailureEvent event = path_.who;
  event.actor = {address, kAgentActor};
  event.unix_ms = absl::ToUnixMillis(WallTime());
  event.kind = WIFSIGNALED(*status) ? FailureKind::kSignalled : FailureKind::kExited;
  event.code = WIFSIGNALED(*status) ? WTERMSIG(*status) : WEXITSTATUS(*status);
  return event;
}

void Peer::SetPaused(uint64_t actor, bool paused) {
  MutexLock lock(mu_);
  if (paused) {
    // More actors than that a process cannot have; a peer that names others only harms itself.
    if (paused_.size() < kWordHintsMax * 16) paused_.insert(actor);
    return;
  }
  paused_.erase(actor);
  WakeWaiters();
  CountBlocked();
}

void Peer::EndNumbers(absl::FunctionRef<bool(const Pair&)> is_over) {
  MutexLock lock(mu_);
  if (state_ != State::kOpen) return;
  // An answer to no one, for the sake of its number.
  FrameHeader last;
  last.kind = FrameKind::kReply;
  last.flags = kFlagReply | kFlagLast;
  last.session = shared_.session;
  for (const auto& [pair, sequence] : sequences_) {
    if (!is_over(pair)) continue;
    last.sender = {shared_.self, pair.first};
    last.receiver = {address, pair.second};
    Append(last, {});
  }
  while (!FlushQueue() && !AskForRoom(kServiceWord)) continue;
  CountBlocked();
}

void Peer::EndNumbersFrom(uint64_t actor) {
  EndNumbers([actor](const Pair& pair) { return pair.first == actor; });
}

void Peer::EndNumbersTo(uint64_t actor) {
  EndNumbers([actor](const Pair& pair) { return pair.second == actor; });
}

size_t Peer::pairs() const {
  MutexLock lock(mu_);
  return sequences_.size();
}

void Peer::SetRelayPaused(bool paused) {
  MutexLock lock(mu_);
  relay_pauses_ = std::max(0, relay_pauses_ + (paused ? 1 : -1));
  if (relay_pauses_ == 0) WakeWaiters();
  CountBlocked();
}

bool Peer::Gone(const FailureEvent& event) {
  MutexLock lock(mu_);
  if (state_ == State::kGone) return false;
  state_ = State::kGone;
  gone_ = event;
  queue_.clear();
  queue_bytes_ = 0;
  WakeWaiters();
  CountBlocked();
  return true;
}

FailureEvent Peer::gone_event() const {
  MutexLock lock(mu_);
  return gone_;
}

}  // namespace monarch
