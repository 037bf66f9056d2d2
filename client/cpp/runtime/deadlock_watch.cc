#include "client/cpp/runtime/deadlock_watch.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "message/utf8.h"
#include "message/value.h"

namespace monarch {
namespace {

// Waits that end before are nobody's business: most calls take less.
constexpr absl::Duration kPatience = absl::Milliseconds(10);
// A search may miss what changes meanwhile, or lose a frame; the next one comes after so many times as long.
constexpr int kPatienceGrowth = 4;
// Searches at one wait; beyond, only those that begin later miss it.
constexpr size_t kVisitsMax = 1 << 16;
// Names in reports are cut off there.
constexpr size_t kNameMax = 100;

std::string Shortened(std::string_view name) { return ToUtf8(name.substr(0, kNameMax)); }

std::string NameOf(const Runtime::ActorInfo& info) {
  std::string name = info.name;
  if (info.shape.size() > 1 && info.rank < info.shape.size()) name += info.shape.PointLabel(info.rank);
  return Shortened(name);
}

std::string ExceptionMeta(const std::vector<std::string>& cycle) {
  return *EncodeValue(Value::Map{
      {"type", "ABORTED"},
      {"message", absl::StrCat("deadlock: each of these waits for the next: ", absl::StrJoin(cycle, " -> "))},
      {"traceback", ""},
      {"deadlock", Value::List(cycle.begin(), cycle.end())}});
}

}  // namespace

DeadlockWatch::DeadlockWatch(Process process)
    : process_(std::move(process)), finder_(process_.self, process_.steps_max, this) {}

void DeadlockWatch::SetEndpointNamer(std::function<std::string()> namer) {
  MutexLock lock(mu_);
  namer_ = std::move(namer);
}

absl::Status DeadlockWatch::Wait(const Inbox& call, uint64_t actor,
                                 absl::FunctionRef<absl::Status(absl::Duration)> sleep) {
  absl::Duration patience = kPatience;
  absl::Status status = sleep(patience);
  if (!absl::IsDeadlineExceeded(status)) return status;
  const auto found = process_.actors->Find(actor);
  if (!found.has_value()) return sleep(absl::InfiniteDuration());  // It has ended: nobody waits for it.
  const uint64_t number = Begin(call, actor, NameOf(found->description));
  do {
    process_.loop->Post([this, actor] { finder_.Start(actor); });
    patience *= kPatienceGrowth;
    status = sleep(patience);
  } while (absl::IsDeadlineExceeded(status));
  End(actor, number);
  return status;
}

uint64_t DeadlockWatch::Begin(const Inbox& call, uint64_t actor, std::string name) {
  std::function<std::string()> namer;
  {
    MutexLock lock(mu_);
    namer = namer_;
  }
  LongWait wait;
  wait.call = &call;
  wait.name = std::move(name);
  if (namer) wait.endpoint = Shortened(namer());
  MutexLock lock(mu_);
  wait.number = ++last_wait_;
  waits_[actor] = std::move(wait);
  return last_wait_;
}

void DeadlockWatch::End(uint64_t actor, uint64_t number) {
  MutexLock lock(mu_);
  const auto it = waits_.find(actor);
  if (it != waits_.end() && it->second.number == number) waits_.erase(it);
}

void DeadlockWatch::Receive(const Message& message) {
  absl::StatusOr<Probe> probe = DecodeProbe(message.view.meta, process_.steps_max);
  if (!probe.ok()) {
    LogWarning("runtime", "probe refused")
        .With("from", message.header.sender.ToString())
        .With("status", probe.status().ToString());
    return;
  }
  // What came before it is in the inboxes by now, whoever brought it there.
  process_.loop->Post([this, probe = *std::move(probe)]() mutable { finder_.Handle(std::move(probe)); });
}

std::optional<DeadlockFinder::Waiting> DeadlockWatch::WaitOf(uint64_t actor) {
  DeadlockFinder::Waiting waiting;
  bool any_ends_it = false;
  {
    MutexLock lock(mu_);
    const auto it = waits_.find(actor);
    if (it == waits_.end() || it->second.call->ready()) return std::nullopt;
    const LongWait& wait = it->second;
    waiting.wait = wait.number;
    waiting.call = wait.call->id();
    waiting.name = wait.name;
    waiting.endpoint = wait.endpoint;
    any_ends_it = wait.call->any_answer_ends_wait();
  }
  waiting.owed = process_.calls->Owed(waiting.call);
  // Of several answers the one that comes will do.
  if (any_ends_it && waiting.owed.size() > 1) waiting.owed.clear();
  return waiting;
}

bool DeadlockWatch::Visit(uint64_t actor, uint64_t wait, const ProcAddress& searcher, uint64_t search) {
  MutexLock lock(mu_);
  const auto it = waits_.find(actor);
  if (it == waits_.end() || it->second.number != wait) return false;
  auto& visits = it->second.visits;
  return visits.size() < kVisitsMax && visits.insert({searcher, search}).second;
}

std::optional<std::string> DeadlockWatch::Queued(uint64_t actor, const ProcAddress& caller, uint64_t call) {
  const std::shared_ptr<Inbox> mailbox = process_.actors->Mailbox(actor);
  const std::optional<std::string> meta =
      mailbox == nullptr ? std::nullopt : mailbox->MetaOfQueued(caller, call);
  if (!meta.has_value()) return std::nullopt;
  const auto value = DecodeValue(*meta);
  const Value::List* list = value.ok() ? value->list() : nullptr;
  const std::string* method = list == nullptr || list->empty() ? nullptr : list->front().string();
  return method == nullptr ? "" : Shortened(*method);
}

bool DeadlockWatch::OthersAnswer(uint64_t actor) {
  const std::shared_ptr<Inbox> mailbox = process_.actors->Mailbox(actor);
  return mailbox == nullptr || mailbox->others_answer();
}

void DeadlockWatch::Send(const ProcAddress& to, const Probe& probe) {
  if (to == process_.self) {
    // Not at once: the path may come back here again and again.
    process_.loop->Post([this, probe]() mutable { finder_.Handle(std::move(probe)); });
    return;
  }
  process_.send(to, *EncodeValue(ToValue(probe)));
}

void DeadlockWatch::Refuse(uint64_t actor, const ProcAddress& caller, uint64_t call,
                           const std::vector<std::string>& cycle) {
  const std::shared_ptr<Inbox> mailbox = process_.actors->Mailbox(actor);
  const std::optional<Message> queued = mailbox == nullptr ? std::nullopt : mailbox->Remove(caller, call);
  if (!queued.has_value()) return;
  process_.refuse(queued->header, ExceptionMeta(cycle));
}

void DeadlockWatch::GiveUp(uint64_t call, const CallTarget& target, const std::vector<std::string>& cycle) {
  const std::optional<uint64_t> caller =
      process_.calls->AnswerFor(call, target, FrameKind::kException, ExceptionMeta(cycle));
  if (caller.has_value()) process_.cancel(call, *caller, target);
}

}  // namespace monarch
