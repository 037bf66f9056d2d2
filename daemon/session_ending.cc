// Session: its end, and that of its launcher.
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "daemon/session.h"

namespace monarch {
namespace {

// Hosts that do not say that nothing is left there: each ends its part by itself, for its link is lost.
constexpr absl::Duration kHostsEndMax = absl::Seconds(4);
// What a client may grant its processes for their end.
constexpr absl::Duration kGoodbyeGraceMax = absl::Minutes(1);

}  // namespace

void Session::WatchClient() {
  if (!client_.pidfd.valid()) return End("its client has ended");
  const absl::Status watched = context_->loop->WatchFd(client_.pidfd.get(), EPOLLIN, [this](uint32_t) {
    context_->loop->Unwatch(client_.pidfd.get());
    End("its client has ended");
  });
  if (!watched.ok()) End(std::string(watched.message()));
}

void Session::OnGoodbye(const ControlMessage& message) {
  // A client that has asked again, as of another daemon, gets both answers by the second.
  if (message.request != 0) goodbye_ = message.request;
  const int64_t signal = message.body["signal"].AsInt().value_or(0);
  if (signal == SIGTERM || signal == SIGHUP)
    return End(absl::StrCat("its client was ended by ", signal == SIGTERM ? "SIGTERM" : "SIGHUP"));
  const absl::Duration grace = absl::Milliseconds(message.body["grace_ms"].AsInt().value_or(0));
  End("its client said goodbye", std::clamp(grace, absl::ZeroDuration(), kGoodbyeGraceMax));
}

void Session::End(const std::string& reason, absl::Duration kill_after) {
  if (state_ != SessionState::kRunning) return;
  state_ = SessionState::kEnding;
  end_reason_ = reason;
  if (kill_after == absl::ZeroDuration())
    kill_after = absl::Milliseconds(context_->limits.session_end_kill_ms);
  LogInfo("daemon", "session ends").With("session", id_.ToHex()).With("reason", reason);
  for (auto& [proc, record] : procs_.all()) {
    if (record.alive() && record.stop_reason.empty())
      record.stop_reason = absl::StrCat("the session ends: ", reason);
  }
  spawner_.AbandonAll(reason, context_->loop->Now());
  if (launcher_) {
    launcher_->EndSession(reason, kill_after);
  } else if (!sweeping_) {
    ended_here_ = true;
  }
  hosts_.EndAll(reason);
  context_->loop->RunAfter(kill_after + kHostsEndMax, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock()) OnHostsEnded();
  });
  MaybeFinishEnd();
}

void Session::OnHostsEnded() {
  hosts_ended_ = true;
  MaybeFinishEnd();
}

void Session::MaybeFinishEnd() {
  if (state_ == SessionState::kEnding && ended_here_ && (is_guest_ || hosts_ended_)) FinishEnd();
}

void Session::FinishEnd() {
  state_ = SessionState::kGone;
  // Last: who sees that the file is gone may count on the session's being so.
  RemoveLauncherState(context_->run_dir, id_);
  context_->events->AddSessionEnd(id_.ToHex(), end_reason_);
  LogInfo("daemon", "session ended").With("session", id_.ToHex());
  hosts_.TellGone();
  const ProcRecord* client = procs_.Find(client_address_);
  if (client != nullptr && client->connection) {
    if (goodbye_) {
      client->connection->Answer(*goodbye_, ControlType::kOk);
    } else {
      client->connection->Send({ControlType::kGoodbye, 0, Value::Map{{"reason", Value(end_reason_)}}});
    }
  }
  context_->loop->Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.lock()) return;
    // Out of the session first, which ends in this call.
    absl::AnyInvocable<void(Session*)> gone = std::move(gone_);
    gone(this);
  });
}

void Session::OnLauncherGone() {
  const std::shared_ptr<LauncherLink> launcher = std::move(launcher_);
  LogInfo("daemon", "launcher ended")
      .With("session", id_.ToHex())
      .With("pid", launcher->pid())
      .With("how", launcher->end());
  context_->sweeper->RemoveKnownChild(launcher->pid());
  keeper_.Use(nullptr);
  if (state_ == SessionState::kRunning) RemoveLauncherState(context_->run_dir, id_);
  // Its own callback runs: it must outlive this call.
  context_->loop->Post([launcher] {});
  std::vector<uint64_t> workers;
  for (const auto& [proc, record] : procs_.all()) {
    if (!record.is_client) workers.push_back(proc);
  }
  // The kernel kills them with their parent; nobody is left to report it.
  ProcExit exit;
  exit.signal = SIGKILL;
  exit.memory_kill.why = absl::StrCat("its launcher (pid ", launcher->pid(), ") ", launcher->end());
  exit.confirmed = true;
  sweeping_ = true;
  for (const uint64_t proc : workers) {
    if (ProcRecord* record = procs_.Find(proc); record != nullptr && !record->alive()) {
      const FailureEvent event = *record->death;
      Bury(proc, event);
      continue;
    }
    OnExited(proc, exit);
  }
  context_->sweeper->Sweep(mark_, [this, alive = std::weak_ptr<bool>(alive_)](int killed) {
    if (!alive.lock()) return;
    if (killed > 0) LogInfo("daemon", "leftovers killed").With("session", id_.ToHex()).With("count", killed);
    AfterSweep();
  });
}

void Session::AfterSweep() {
  sweeping_ = false;
  for (auto& task : std::exchange(after_sweep_, {})) task();
  if (state_ != SessionState::kEnding) return;
  ended_here_ = true;
  MaybeFinishEnd();
}

}  // namespace monarch
