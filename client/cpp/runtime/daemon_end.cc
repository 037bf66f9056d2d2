// RuntimeImpl: the daemon ends, and comes back. All on the service thread.
#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "client/cpp/runtime/end_signals.h"
#include "client/cpp/runtime/runtime_impl.h"

namespace monarch {
namespace {

// A worker without a daemon or a launcher to serve.
constexpr absl::Duration kOrphanGrace = absl::Seconds(1);

}  // namespace

void RuntimeImpl::OnDaemonEnded(const std::string& why, bool may_return) {
  if (daemon_ended_ || daemon_away_) return;
  TellNoMoreOfEndSignals(daemon_.fd());
  loop_->Unwatch(daemon_.fd());
  if (!may_return) return EndDaemon(why);
  daemon_away_ = true;
  daemon_.Detach();
  {
    MutexLock lock(mu_);
    for (const uint32_t word : answer_words_) words_->Wake(word);
  }
  LoseRelayed();
  return_.Begin();
}

void RuntimeImpl::LoseRelayed() {
  WaitWords::Batch batch(words_.get(), kServiceWord);
  const absl::Status lost = absl::UnavailableError("monarchd, which relayed to it, has ended");
  {
    MutexLock lock(drain_mu_);
    for (const std::shared_ptr<Peer>& peer : peers_.All()) {
      const bool is_remote = peer->address.host != self_.host;
      if (is_remote || (peer->introduced() && peer->ring() == nullptr)) BreakLink(peer, lost);
    }
  }
  std::vector<OwnedMeshes::Report> reports;
  {
    MutexLock lock(mu_);
    for (const ProcAddress& proc : owned_.AllProcs()) {
      if (proc.host == self_.host) continue;
      auto more = owned_.Died(proc, DaemonEnded({proc, 0}));
      reports.insert(reports.end(), more.begin(), more.end());
    }
  }
  ReportToOwners(reports);
}

void RuntimeImpl::OnDaemonReturned(PacketSocket socket) {
  daemon_.Attach(std::move(socket));
  if (is_client_) TellOfEndSignals(daemon_.fd());
  write_wanted_ = false;
  daemon_away_ = false;
  WatchDaemon();
  // What the last daemon may not have heard; asked twice, it answers once.
  for (const std::shared_ptr<Peer>& peer : peers_.All()) {
    if (peer->introduced()) continue;
    static_cast<void>(daemon_.Send({ControlType::kConnect, 0, Value::Map{{"peer", ToValue(peer->address)}}}));
  }
  for (const auto& [actor, info] : actors_.All()) {
    if (actor == kRootActor) continue;  // No daemon lists it.
    TellActorUp(actor, info);
    // It may have ended, and said so, since All.
    if (!actors_.IsLive(actor))
      static_cast<void>(daemon_.Send({ControlType::kActorDown, 0, Value::Map{{"actor", actor}}}));
  }
  if (!daemon_.Flush()) WantWrite();
}

void RuntimeImpl::EndDaemon(const std::string& why) {
  if (daemon_ended_) return;
  // First: it is what who finds the other says.
  daemon_.Fail(absl::UnavailableError(why));
  daemon_ended_ = true;
  {
    MutexLock lock(mu_);
    for (const uint32_t word : answer_words_) words_->Wake(word);
  }
  if (!is_client_) {
    StopProcess("monarchd ended", kOrphanGrace, true);
    return;
  }
  WaitWords::Batch batch(words_.get(), kServiceWord);
  for (const std::shared_ptr<Peer>& peer : peers_.All()) DropPeer(peer, DaemonEnded({peer->address, 0}));
  FailCallsTo(nullptr, DaemonEnded({}));
  std::vector<OwnedMeshes::Report> reports;
  {
    MutexLock lock(mu_);
    for (const ProcAddress& proc : owned_.AllProcs()) {
      auto more = owned_.Died(proc, DaemonEnded({proc, 0}));
      reports.insert(reports.end(), more.begin(), more.end());
    }
  }
  ReportToOwners(reports);
}

}  // namespace monarch
