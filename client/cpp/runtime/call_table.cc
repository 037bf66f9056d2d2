#include "client/cpp/runtime/call_table.h"

#include <utility>

#include "client/cpp/runtime/payload_block.h"
#include "message/control_message.h"

namespace monarch {

std::shared_ptr<Inbox> CallTable::Add(uint64_t owner, bool is_call) {
  const uint64_t id = ++last_id_;
  Inbox::Bounds bounds;
  Inbox::Resume resume;
  if (!is_call) {
    bounds = {bounds_.port_bytes_max, bounds_.port_messages_max};
    resume = [resume = resume_, owner](std::vector<ProcAddress> procs, std::vector<uint32_t> words) {
      resume(owner, std::move(procs), std::move(words));
    };
  }
  std::shared_ptr<Inbox> inbox(new Inbox(id, waker_, bounds, std::move(resume)));
  entries_[id] = {inbox, owner, is_call, {}};
  return inbox;
}

std::shared_ptr<Inbox> CallTable::OpenCall(uint64_t owner, size_t answers, uint32_t word,
                                           int64_t deadline_ns) {
  MutexLock lock(mu_);
  std::shared_ptr<Inbox> inbox = Add(owner, true);
  Entry& entry = entries_[inbox->id()];
  entry.answers = static_cast<uint32_t>(answers);
  entry.deadline_ns = deadline_ns;
  {
    MutexLock inbox_lock(inbox->mu_);
    inbox->expected_ = answers;
    inbox->deadline_ns_ = deadline_ns;
    inbox->word_ = word;
    inbox->rung_word_ = word;
  }
  // Last: from now on TakeLate may end it.
  if (deadline_ns != 0) deadlines_.insert({deadline_ns, inbox->id()});
  return inbox;
}

std::shared_ptr<Inbox> CallTable::OpenPort(uint64_t owner, uint32_t word) {
  std::shared_ptr<Inbox> inbox;
  {
    MutexLock lock(mu_);
    inbox = Add(owner, false);
  }
  MutexLock lock(inbox->mu_);
  inbox->owner_ = owner;
  inbox->unbounded_ = true;
  inbox->word_ = word;
  inbox->rung_word_ = word;
  return inbox;
}

std::shared_ptr<Inbox> CallTable::Closed() {
  std::shared_ptr<Inbox> inbox(new Inbox(0, {}, {}, nullptr));
  MutexLock lock(inbox->mu_);
  inbox->closed_ = true;
  return inbox;
}

CallTable::GivenUp CallTable::Erase(uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return {};
  Entry& entry = it->second;
  if (entry.deadline_ns != 0) deadlines_.erase({entry.deadline_ns, id});
  GivenUp call = {std::move(entry.inbox), entry.owner, std::move(entry.expected), entry.sent, entry.answers};
  entries_.erase(it);
  return call;
}

CallTable::GivenUp CallTable::GiveUp(uint64_t id) {
  const auto it = entries_.find(id);
  if (it != entries_.end() && it->second.is_call) it->second.inbox->given_up_ = true;
  return Erase(id);
}

CallTable::GivenUp CallTable::Close(Inbox& inbox) {
  GivenUp call;
  {
    MutexLock lock(mu_);
    call = GiveUp(inbox.id());
  }
  // What was queued is destroyed here, without locks: it may give blocks back.
  inbox.Close();
  return call;
}

std::vector<CallTable::GivenUp> CallTable::TakeLate(int64_t now_ns) {
  std::vector<GivenUp> late;
  MutexLock lock(mu_);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    late.push_back(GiveUp(deadlines_.begin()->second));
  }
  return late;
}

void CallTable::TellLate(const GivenUp& call) {
  std::vector<CallTarget> missing = call.unanswered;
  for (uint32_t rank = call.unsent_begin; rank < call.unsent_end; ++rank) missing.push_back({{}, rank});
  for (const CallTarget& target : missing) {
    Push(call.inbox, AnswerMessage({call.inbox->id(), call.owner, target}, FrameKind::kCancel, {}));
  }
}

int64_t CallTable::NextDeadline() const {
  MutexLock lock(mu_);
  return deadlines_.empty() ? kNoDeadline : deadlines_.begin()->first;
}

bool CallTable::Expect(const Inbox& call, absl::Span<const CallTarget> targets) {
  MutexLock lock(mu_);
  const auto it = entries_.find(call.id());
  if (it == entries_.end()) return false;
  it->second.expected.insert(it->second.expected.end(), targets.begin(), targets.end());
  it->second.sent += static_cast<uint32_t>(targets.size());
  return true;
}

void CallTable::Unexpect(const Inbox& call, absl::Span<const CallTarget> targets) {
  MutexLock lock(mu_);
  const auto it = entries_.find(call.id());
  if (it == entries_.end()) return;
  for (const CallTarget& target : targets) TakeExpected(&it->second, target.rank, target.actor);
  it->second.sent -= static_cast<uint32_t>(targets.size());
}

std::vector<CallTarget> CallTable::Owed(uint64_t call) const {
  MutexLock lock(mu_);
  const auto it = entries_.find(call);
  if (it == entries_.end()) return {};
  return it->second.expected;
}

size_t CallTable::size() const {
  MutexLock lock(mu_);
  return entries_.size();
}

bool CallTable::TakeExpected(Entry* entry, uint32_t rank, const ActorAddress& from) {
  std::vector<CallTarget>& expected = entry->expected;
  size_t found = expected.size();
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].rank != rank) continue;
    found = i;
    if (expected[i].actor == from) break;
  }
  if (found == expected.size()) return false;
  expected[found] = expected.back();
  expected.pop_back();
  return true;
}

bool CallTable::Push(const std::shared_ptr<Inbox>& inbox, Message message) {
  const uint64_t id = inbox->id();
  const bool pause = inbox->Push(std::move(message)).pause;
  {
    MutexLock lock(inbox->mu_);
    if (inbox->unbounded_ || inbox->expected_ > 0) return pause;
  }
  MutexLock lock(mu_);
  Erase(id);
  return pause;
}

std::shared_ptr<Inbox> CallTable::Deliver(Message message, bool* pause) {
  *pause = false;
  std::shared_ptr<Inbox> inbox;
  {
    MutexLock lock(mu_);
    const auto it = entries_.find(message.header.port_id);
    if (it == entries_.end() || it->second.owner != message.header.receiver.actor) return nullptr;
    Entry& entry = it->second;
    const bool was_owed = TakeExpected(&entry, message.header.rank, message.header.sender);
    if (entry.is_call && !was_owed) return nullptr;
    inbox = entry.inbox;
  }
  *pause = Push(inbox, std::move(message));
  return inbox;
}

std::shared_ptr<Inbox> CallTable::Port(uint64_t owner, uint64_t id) const {
  MutexLock lock(mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.is_call || it->second.owner != owner) return nullptr;
  return it->second.inbox;
}

Message CallTable::AnswerMessage(const Open& open, FrameKind kind, std::string_view meta) const {
  FrameHeader header;
  header.kind = kind;
  header.flags = kFlagReply;
  header.sender = open.target.actor;
  header.receiver = {self_, open.owner};
  header.call_id = open.call;
  header.port_id = open.call;
  header.rank = open.target.rank;
  return MakeMessage(header, meta);
}

Message CallTable::FailureMessage(const Open& open, const FailureEvent& event) const {
  return AnswerMessage(open, FrameKind::kFailure, EncodeFailureEvent(event));
}

std::optional<uint64_t> CallTable::AnswerFor(uint64_t call, const CallTarget& target, FrameKind kind,
                                             std::string_view meta) {
  Open open = {call, 0, target};
  std::shared_ptr<Inbox> inbox;
  {
    MutexLock lock(mu_);
    const auto it = entries_.find(call);
    if (it == entries_.end() || !TakeExpected(&it->second, target.rank, target.actor)) return std::nullopt;
    open.owner = it->second.owner;
    inbox = it->second.inbox;
  }
  Push(inbox, AnswerMessage(open, kind, meta));
  return open.owner;
}

void CallTable::Fail(uint64_t call, uint32_t rank, const FailureEvent& event, bool expected_only) {
  Open open = {call, 0, {event.actor, rank}};
  std::shared_ptr<Inbox> inbox;
  {
    MutexLock lock(mu_);
    const auto it = entries_.find(call);
    if (it == entries_.end()) return;
    const bool taken = TakeExpected(&it->second, rank, event.actor);
    if (expected_only && !taken) return;
    open.owner = it->second.owner;
    inbox = it->second.inbox;
  }
  Push(inbox, FailureMessage(open, event));
}

void CallTable::FailActor(const ActorAddress& actor, const FailureEvent& event) {
  FailWhere([&](const ActorAddress& target) { return target == actor; },
            [&](const ActorAddress&) { return event; });
}

void CallTable::FailProc(const ProcAddress* proc, const EventFor& event_for) {
  FailWhere([proc](const ActorAddress& target) { return proc == nullptr || target.proc == *proc; },
            event_for);
}

void CallTable::FailWhere(absl::FunctionRef<bool(const ActorAddress&)> fails, const EventFor& event_for) {
  std::vector<std::pair<std::shared_ptr<Inbox>, Open>> failed;
  {
    MutexLock lock(mu_);
    for (auto& each : entries_) {
      Entry& entry = each.second;
      std::erase_if(entry.expected, [&](const CallTarget& target) {
        if (!fails(target.actor)) return false;
        failed.push_back({entry.inbox, {entry.inbox->id(), entry.owner, target}});
        return true;
      });
    }
  }
  for (auto& [inbox, open] : failed) Push(inbox, FailureMessage(open, event_for(open.target.actor)));
}

}  // namespace monarch
