#include "client/cpp/runtime/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errno_status.h"
#include "client/cpp/runtime/frame_rules.h"

namespace monarch {
namespace {

// A sender that goes on although it was told to pause (a resume for something else of the same actor may have
// come between) is told again after so many messages.
constexpr uint32_t kPauseAgain = 16;
// Messages that are looked through for a call, under the lock that senders need too.
constexpr size_t kLookedThroughMax = 16384;
// Of cancelled calls that a mailbox remembers. Nothing holds these back: who sends ever more is not heard.
constexpr size_t kCancelsMax = 4096;

bool IsOf(const FrameHeader& header, const ProcAddress& caller, uint64_t call) {
  return header.call_id == call && header.sender.proc == caller;
}

bool IsCall(const Message& message, const ProcAddress& caller, uint64_t call) {
  return message.header.kind == FrameKind::kCall && IsOf(message.header, caller, call);
}

}  // namespace

bool Message::IsLate() const { return header.kind == FrameKind::kCall && HasPassed(header.deadline_ns); }

void Notifier::RaiseEventFd() {
  if (!eventfd_.valid()) return;
  const uint64_t one = 1;
  // EAGAIN: the counter is full, hence readable already.
  static_cast<void>(!write(eventfd_.get(), &one, sizeof(one)));
}

void Notifier::Notify(uint64_t cookie) {
  uint32_t word = 0;
  {
    MutexLock lock(mu_);
    if (!listed_.insert(cookie).second) return;  // Woken for it before, and not taken yet.
    ready_.push_back(cookie);
    RaiseEventFd();
    word = word_;
  }
  if (auto waker = waker_.lock()) waker->Wake(word);
}

void Notifier::Poke() {
  uint32_t word = 0;
  {
    MutexLock lock(mu_);
    if (std::exchange(poked_, true)) return;
    RaiseEventFd();
    word = word_;
  }
  if (auto waker = waker_.lock()) waker->Wake(word);
}

std::vector<uint64_t> Notifier::Take() {
  MutexLock lock(mu_);
  poked_ = false;
  listed_.clear();
  if (eventfd_.valid()) {
    uint64_t count = 0;
    static_cast<void>(!read(eventfd_.get(), &count, sizeof(count)));
  }
  return std::exchange(ready_, {});
}

bool Notifier::has_news() const {
  MutexLock lock(mu_);
  return poked_ || !ready_.empty();
}

absl::StatusOr<int> Notifier::EventFd() {
  MutexLock lock(mu_);
  if (!eventfd_.valid()) {
    eventfd_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!eventfd_.valid()) return ErrnoStatus("eventfd", errno);
    if (poked_ || !ready_.empty()) RaiseEventFd();
  }
  return eventfd_.get();
}

void Notifier::SetWord(uint32_t word) {
  MutexLock lock(mu_);
  word_ = word;
}

bool Inbox::Over() const { return bytes_ > bounds_.bytes_max || queue_.size() > bounds_.messages_max; }

bool Inbox::Finished() const { return queue_.empty() && (closed_ || (!unbounded_ && expected_ == 0)); }

Message Inbox::Take(std::list<Message>::const_iterator at, Room* room) {
  std::list<Message> taken;
  taken.splice(taken.begin(), queue_, at);
  Message message = std::move(taken.front());
  if (message.header.kind == FrameKind::kCancel) --cancels_;
  bytes_ -= message.header.payload_length + kMessageBytes;
  if (over_ && bytes_ <= bounds_.bytes_max / 2 && queue_.size() <= bounds_.messages_max / 2) {
    over_ = false;
    for (const auto& [proc, count] : paused_) room->procs.push_back(proc);
    paused_.clear();
    room->words.swap(room_words_);
  }
  return message;
}

void Inbox::TellRoom(Room room) {
  if (resume_ && (!room.procs.empty() || !room.words.empty())) {
    resume_(std::move(room.procs), std::move(room.words));
  }
}

std::optional<Message> Inbox::TryPop() {
  std::optional<Message> message;
  std::vector<Message> late;  // Destroyed without the lock: they may give blocks back.
  Room room;
  {
    MutexLock lock(mu_);
    while (!queue_.empty()) {
      message = Take(queue_.begin(), &room);
      if (!message->IsLate()) break;
      late.push_back(*std::move(message));
      message.reset();
    }
  }
  TellRoom(std::move(room));
  return message;
}

std::list<Message>::const_iterator Inbox::Find(const ProcAddress& caller, uint64_t call) const {
  size_t looked_through = 0;
  for (auto at = queue_.begin(); at != queue_.end() && looked_through < kLookedThroughMax; ++at) {
    if (IsCall(*at, caller, call)) return at;
    ++looked_through;
  }
  return queue_.end();
}

std::optional<Message> Inbox::Remove(const ProcAddress& caller, uint64_t call) {
  std::optional<Message> message;
  Room room;
  {
    MutexLock lock(mu_);
    const auto at = Find(caller, call);
    if (at == queue_.end()) return std::nullopt;
    message = Take(at, &room);
  }
  TellRoom(std::move(room));
  return message;
}

std::optional<std::string> Inbox::MetaOfQueued(const ProcAddress& caller, uint64_t call) const {
  MutexLock lock(mu_);
  const auto at = Find(caller, call);
  if (at == queue_.end()) return std::nullopt;
  return std::string(at->view.meta);
}

void Inbox::SetAnyAnswerEndsWait() {
  MutexLock lock(mu_);
  any_answer_ends_wait_ = true;
}

bool Inbox::any_answer_ends_wait() const {
  MutexLock lock(mu_);
  return any_answer_ends_wait_;
}

void Inbox::SetOthersAnswer() {
  MutexLock lock(mu_);
  others_answer_ = true;
}

bool Inbox::others_answer() const {
  MutexLock lock(mu_);
  return others_answer_;
}

void Inbox::Cancel(Message cancel) {
  std::optional<Message> dropped;
  Room room;
  {
    MutexLock lock(mu_);
    const auto at = Find(cancel.header.sender.proc, cancel.header.call_id);
    if (at != queue_.end()) {
      dropped = Take(at, &room);
    } else {
      if (closed_ || cancels_ >= kCancelsMax) return;
      ++cancels_;
      bytes_ += cancel.header.payload_length + kMessageBytes;
      queue_.push_front(std::move(cancel));
      over_ = over_ || Over();
    }
  }
  if (!dropped.has_value()) {
    Tell();
  } else {
    TellRoom(std::move(room));
  }
}

bool Inbox::IsCancelled(const Message& call) const {
  // Not by its deadline: until its caller has given it up, an answer that comes is the result.
  if (call.cancelled) return true;
  MutexLock lock(mu_);
  for (const Message& queued : queue_) {
    if (queued.header.kind != FrameKind::kCancel) break;
    if (IsOf(queued.header, call.header.sender.proc, call.header.call_id)) return true;
  }
  return false;
}

bool Inbox::empty() const {
  MutexLock lock(mu_);
  return queue_.empty();
}

size_t Inbox::size() const {
  MutexLock lock(mu_);
  return queue_.size();
}

bool Inbox::finished() const {
  MutexLock lock(mu_);
  return Finished();
}

bool Inbox::ready() const {
  MutexLock lock(mu_);
  return !queue_.empty() || Finished();
}

void Inbox::SetNotifier(std::shared_ptr<Notifier> notifier, uint64_t cookie) {
  {
    MutexLock lock(mu_);
    notifier_ = notifier;
    cookie_ = cookie;
    if (queue_.empty() && !Finished()) return;
  }
  if (notifier != nullptr) notifier->Notify(cookie);
}

void Inbox::Append(Message message) {
  bytes_ += message.header.payload_length + kMessageBytes;
  queue_.push_back(std::move(message));
  if (Over()) over_ = true;
}

Inbox::Pushed Inbox::Push(Message message) {
  Pushed pushed;
  {
    MutexLock lock(mu_);
    if (Refuses(message) || (!unbounded_ && expected_ == 0)) return pushed;
    if (!unbounded_) --expected_;
    const ProcAddress from = message.header.sender.proc;
    Append(std::move(message));
    pushed.accepted = true;
    pushed.pause = over_ && paused_[from]++ % kPauseAgain == 0;
  }
  Tell();
  return pushed;
}

bool Inbox::PushIfRoom(Message& message, uint32_t word, bool* closed) {
  {
    MutexLock lock(mu_);
    *closed = Refuses(message);
    if (*closed) return false;
    if (over_) {
      if (std::find(room_words_.begin(), room_words_.end(), word) == room_words_.end())
        room_words_.push_back(word);
      return false;
    }
    Append(std::move(message));
  }
  Tell();
  return true;
}

bool Inbox::IsPaused(const ProcAddress& proc) const {
  MutexLock lock(mu_);
  return paused_.contains(proc);
}

bool Inbox::Refuses(const Message& message) const {
  return closed_ || (refuses_calls_ && message.header.kind == FrameKind::kCall);
}

std::list<Message> Inbox::RefuseCalls() {
  std::list<Message> refused;
  Room room;
  {
    MutexLock lock(mu_);
    refuses_calls_ = true;
    for (auto at = queue_.begin(); at != queue_.end();) {
      const auto next = std::next(at);
      if (at->header.kind == FrameKind::kCall) refused.push_back(Take(at, &room));
      at = next;
    }
  }
  TellRoom(std::move(room));
  return refused;
}

std::list<Message> Inbox::Close() {
  std::list<Message> left;
  Room room;
  {
    MutexLock lock(mu_);
    if (std::exchange(closed_, true)) return left;
    left.swap(queue_);
    bytes_ = 0;
    over_ = false;
    for (const auto& [proc, count] : paused_) room.procs.push_back(proc);
    paused_.clear();
    room.words.swap(room_words_);
  }
  TellRoom(std::move(room));
  Tell();
  return left;
}

void Inbox::Wakes(uint32_t word) {
  MutexLock lock(mu_);
  word_ = word;
}

void Inbox::Tell() {
  uint32_t word = 0;
  std::shared_ptr<Notifier> notifier;
  uint64_t cookie = 0;
  {
    MutexLock lock(mu_);
    word = word_;
    notifier = notifier_;
    cookie = cookie_;
  }
  if (notifier != nullptr) {
    notifier->Notify(cookie);
    return;
  }
  if (auto waker = waker_.lock()) waker->Wake(word);
}

}  // namespace monarch
