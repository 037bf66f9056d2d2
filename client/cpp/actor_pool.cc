#include "client/cpp/actor_pool.h"

#include <csignal>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "client/cpp/runtime/crash_handler.h"

namespace monarch {
namespace {

// So that one busy actor gives way to others on the same thread.
constexpr size_t kMessagesPerTurn = 64;

}  // namespace

ActorPool::ActorPool(Runtime* runtime, const ActorTypes* types, size_t threads)
    : runtime_(runtime), types_(types), notifier_(runtime->MakeNotifier()) {
  // Signals belong to the main thread; threads inherit the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { ThreadMain(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ActorPool::~ActorPool() { StopAll("process ends"); }

void ActorPool::Add(RuntimeTask create) {
  const uint64_t id = create.actor;
  const std::shared_ptr<Inbox> mailbox = create.mailbox;
  auto strand = std::make_shared<ActorStrand>(runtime_, types_, std::move(create));
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    strands_[id] = strand;
    // With one actor nobody has to lead while it runs; now somebody has to.
    if (!led_) changed_.NotifyOne();
  }
  mailbox->SetNotifier(notifier_, id);
  notifier_->Notify(id);  // To construct it, also if no message comes.
}

std::shared_ptr<ActorStrand> ActorPool::NextReady() {
  MutexLock lock(mu_);
  while (true) {
    if (stopping_) return nullptr;
    if (!ready_.empty()) {
      std::shared_ptr<ActorStrand> strand = std::move(ready_.front());
      ready_.pop_front();
      // Somebody has to hear of the next message while this thread runs user code, unless that can only be
      // another one for the same actor.
      if (!ready_.empty() || (!led_ && strands_.size() > 1)) changed_.NotifyOne();
      return strand;
    }
    if (led_) {
      changed_.Wait(mu_);
      continue;
    }
    led_ = true;
    mu_.Unlock();
    runtime_->BindPool();
    static_cast<void>(runtime_->WaitNotifier(*notifier_, -1, absl::InfiniteDuration()));
    mu_.Lock();
    led_ = false;
    for (const uint64_t id : notifier_->Take()) {
      const auto it = strands_.find(id);
      if (it != strands_.end()) ready_.push_back(it->second);
    }
  }
}

void ActorPool::ThreadMain() {
  UseCrashStack();
  while (std::shared_ptr<ActorStrand> strand = NextReady()) {
    if (strand->Run(kMessagesPerTurn)) {
      MutexLock lock(mu_);
      ready_.push_back(strand);
    }
    if (strand->ended()) Reap(strand);
  }
}

void ActorPool::Reap(const std::shared_ptr<ActorStrand>& strand) {
  MutexLock lock(mu_);
  strands_.erase(strand->actor_id());
}

bool ActorPool::StopActors(const std::string& reason, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  std::vector<CallTarget> actors;
  {
    MutexLock lock(mu_);
    for (const auto& [id, strand] : strands_) actors.push_back({{runtime_->self(), id}, 0});
  }
  const auto call = runtime_->OpenCall(kAgentActor, actors.size());
  const std::string meta = *EncodeValue(Value::Map{{"reason", reason}});
  absl::Status status =
      runtime_->Send(kAgentActor, FrameKind::kStopActor, actors, {PayloadKind::kNone, meta, {}}, call.get());
  for (size_t answers = 0; status.ok() && answers < actors.size();) {
    status = runtime_->Wait(*call, deadline - clock.Now());
    if (absl::IsCancelled(status)) status = absl::OkStatus();  // A signal whose handler returned.
    while (call->TryPop()) ++answers;
  }
  return status.ok();
}

void ActorPool::StopAll(const std::string& reason) {
  absl::flat_hash_map<uint64_t, std::shared_ptr<ActorStrand>> strands;
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    stopping_ = true;
    strands.swap(strands_);
    ready_.clear();
    changed_.NotifyAll();
  }
  runtime_->WakeNotifier(*notifier_);
  // A thread leaves after the message it is in; then no strand runs any more.
  for (std::thread& thread : threads_) thread.join();
  for (auto& [id, strand] : strands) strand->Stop(reason);
}

}  // namespace monarch
