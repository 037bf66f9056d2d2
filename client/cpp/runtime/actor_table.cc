#include "client/cpp/runtime/actor_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

// Ended actors whose end is remembered, for callers that come late; older ones are "no such actor".
constexpr size_t kEndedMax = 4096;

}  // namespace

absl::StatusOr<std::shared_ptr<Inbox>> ActorTable::Add(uint64_t id, Runtime::ActorInfo description) {
  MutexLock lock(mu_);
  if (id == kAgentActor || actors_.contains(id)) {
    return absl::AlreadyExistsError(absl::StrCat("actor ", id, " exists in this process"));
  }
  if (actors_.size() >= bounds_.actors_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("actors_per_proc_max=", bounds_.actors_max, " is reached"));
  }
  Inbox::Resume resume = [resume = resume_, id](std::vector<ProcAddress> procs, std::vector<uint32_t> words) {
    resume(id, std::move(procs), std::move(words));
  };
  std::shared_ptr<Inbox> mailbox(
      new Inbox(0, waker_, {bounds_.mailbox_bytes_max, bounds_.mailbox_messages_max}, std::move(resume)));
  {
    MutexLock inbox_lock(mailbox->mu_);
    mailbox->unbounded_ = true;
  }
  actors_[id] = {mailbox, std::move(description), 0};
  return mailbox;
}

std::shared_ptr<Inbox> ActorTable::Mailbox(uint64_t id) const {
  MutexLock lock(mu_);
  const auto it = actors_.find(id);
  return it == actors_.end() ? nullptr : it->second.mailbox;
}

bool ActorTable::IsLive(uint64_t id) const {
  if (id == kAgentActor || id == kRootActor) return true;
  MutexLock lock(mu_);
  return actors_.contains(id);
}

std::optional<ActorTable::Actor> ActorTable::Find(uint64_t id) const {
  MutexLock lock(mu_);
  const auto it = actors_.find(id);
  if (it == actors_.end()) return std::nullopt;
  return it->second;
}

std::optional<Runtime::ActorInfo> ActorTable::SetRestarts(uint64_t id, const MeshRestarts& restarts) {
  MutexLock lock(mu_);
  const auto it = actors_.find(id);
  if (it == actors_.end()) return std::nullopt;
  it->second.description.restarts = restarts;
  return it->second.description;
}

uint32_t ActorTable::Bind(uint64_t id, uint32_t word) {
  MutexLock lock(mu_);
  const auto it = actors_.find(id);
  if (it == actors_.end()) return 0;
  MutexLock inbox_lock(it->second.mailbox->mu_);
  it->second.mailbox->rung_word_ = word;
  it->second.mailbox->word_ = word;
  return std::exchange(it->second.word, word);
}

uint32_t ActorTable::WordOf(uint64_t id) const {
  MutexLock lock(mu_);
  const auto it = actors_.find(id);
  return it == actors_.end() ? 0 : it->second.word;
}

std::optional<ActorTable::Actor> ActorTable::End(uint64_t id, const FailureEvent& event) {
  MutexLock lock(mu_);
  auto node = actors_.extract(id);
  if (node.empty()) return std::nullopt;
  any_failed_ |= !event.is_stop();
  Remember(id, event);
  return std::move(node.mapped());
}

void ActorTable::Remember(uint64_t id, const FailureEvent& event) {
  if (ended_.emplace(id, event).second) ended_order_.push_back(id);
  if (ended_order_.size() > kEndedMax) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
}

void ActorTable::Refuse(uint64_t id, const FailureEvent& event) {
  MutexLock lock(mu_);
  if (!actors_.contains(id)) Remember(id, event);
}

void ActorTable::Orphan(uint64_t id, const FailureEvent& event) {
  MutexLock lock(mu_);
  if (const auto it = actors_.find(id); it != actors_.end()) it->second.orphaned = event;
}

std::optional<FailureEvent> ActorTable::EndOf(uint64_t id) const {
  MutexLock lock(mu_);
  if (const auto live = actors_.find(id); live != actors_.end()) return live->second.orphaned;
  const auto it = ended_.find(id);
  if (it == ended_.end()) return std::nullopt;
  return it->second;
}

bool ActorTable::AnyFailed() const {
  MutexLock lock(mu_);
  return any_failed_;
}

std::vector<std::pair<uint64_t, Runtime::ActorInfo>> ActorTable::All() const {
  MutexLock lock(mu_);
  std::vector<std::pair<uint64_t, Runtime::ActorInfo>> all;
  for (const auto& [id, actor] : actors_) all.emplace_back(id, actor.description);
  return all;
}

std::vector<uint64_t> ActorTable::OwnedFrom(const ProcAddress& proc) const {
  MutexLock lock(mu_);
  std::vector<uint64_t> ids;
  for (const auto& [id, actor] : actors_) {
    if (actor.description.owner.proc == proc) ids.push_back(id);
  }
  return ids;
}

}  // namespace monarch
