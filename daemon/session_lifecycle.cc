// Session: launches, deaths and stops.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/run_dir.h"
#include "daemon/session.h"
#include "daemon/system_users.h"

namespace monarch {
namespace {

// The launcher could read no cause: the reaped status may follow, and it decides between a stop and a
// failure.
constexpr absl::Duration kUnknownCauseWait = absl::Milliseconds(50);
// A process whose life-line broke is gone for its peers; one that does not end then is made to.
constexpr absl::Duration kDyingMax = absl::Seconds(2);

std::string_view NameOf(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// The daemon's own environment, where `env` has not the same name.
std::vector<std::string> InheritedEnv(const std::vector<std::string>& env) {
  std::set<std::string_view> names;
  for (const std::string& entry : env) names.insert(NameOf(entry));
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!names.contains(NameOf(*entry))) out.emplace_back(*entry);
  }
  out.insert(out.end(), env.begin(), env.end());
  return out;
}

// Of one that was asked to end: it still had actors, and the ladder did not make it end in this way.
bool CrashedInItsStop(const ProcRecord& record, const ProcExit& exit, bool session_ends) {
  if (record.lost_actors.empty()) return false;
  if (exit.memory_kill.answer == MemoryVerdict::Answer::kYes) return true;
  // Then the launcher has a ladder for all.
  const StopMachine::Action used =
      record.stop && !session_ends ? record.stop->strongest() : StopMachine::Action::kKill;
  if (exit.signal == SIGTERM) return used < StopMachine::Action::kTerm;
  if (exit.signal == SIGKILL) return used < StopMachine::Action::kKill;
  return exit.signal != 0 || exit.code != 0;
}

int64_t NowUnixMs() { return absl::ToUnixMillis(WallTime()); }

}  // namespace

absl::Status Session::RoomFor(int64_t procs, RequestError* error) const {
  const struct {
    const char* name;
    int64_t max;
    int64_t used;
  } limits[] = {
      {"procs_per_session_max", context_->limits.procs_per_session_max,
       static_cast<int64_t>(procs_.workers())},
      {"procs_per_host_max", context_->limits.procs_per_host_max, context_->workers},
  };
  for (const auto& limit : limits) {
    if (procs <= limit.max - limit.used) continue;
    error->limit = limit.name;
    error->limit_value = static_cast<uint64_t>(limit.max);
    error->asked = static_cast<uint64_t>(procs);
    return absl::ResourceExhaustedError(absl::StrCat("spawn of ", procs, " processes: ", limit.name, "=",
                                                     limit.max, ", of which ", limit.used, " are in use"));
  }
  return absl::OkStatus();
}

void Session::Spawn(SpawnRequest request, const ProcAddress& asker, Spawner::Reply reply) {
  if (request.owner.proc.proc == 0) request.owner.proc = asker;
  const auto is_here = [this](const HostId& host) { return host == context_->host; };
  if (std::all_of(request.hosts.begin(), request.hosts.end(), is_here)) {
    request.hosts.clear();
    return SpawnHere(std::move(request), std::move(reply));
  }
  if (is_guest_) return SpawnOn(hosts_.home(), std::move(request), std::move(reply));
  spread_.Spawn(std::move(request), std::move(reply));
}

void Session::SpawnHere(SpawnRequest request, Spawner::Reply reply) {
  SpawnResult refused;
  char cwd[4096];
  for (ProcessSpec& spec : request.specs) {
    // The launcher has a directory of its own.
    if (spec.cwd.empty() && getcwd(cwd, sizeof(cwd)) != nullptr) spec.cwd = cwd;
  }
  const ProcAddress owner = request.owner.proc;
  const ProcRecord* owner_record = procs_.Find(owner);
  const bool owner_lives = owner.host == context_->host
                               ? owner_record != nullptr && owner_record->alive()
                               : hosts_.Reaches(owner.host) && procs_.EndOf(owner) == nullptr;
  if (state_ != SessionState::kRunning) {
    refused.error.status =
        absl::FailedPreconditionError(absl::StrCat("spawn: the session is ending, ", end_reason_));
  } else if (!owner_lives) {
    refused.error.status =
        absl::FailedPreconditionError("spawn: the owner is no living process of this session");
  } else if (!spawner_.Knows(request.request_id)) {
    refused.error.status = RoomFor(static_cast<int64_t>(request.count()), &refused.error);
  }
  if (!refused.error.status.ok()) return reply(refused);
  if (sweeping_) {
    // What the sweep looks for is what new processes would carry.
    after_sweep_.push_back([this, request = std::move(request), reply = std::move(reply)]() mutable {
      SpawnHere(std::move(request), std::move(reply));
    });
    return;
  }
  if (!spawner_.Knows(request.request_id)) {
    refused.error.status = EnsureLauncher();
    if (!refused.error.status.ok()) return reply(refused);
  }
  spawner_.Spawn(std::move(request), context_->loop->Now(), std::move(reply));
  Rearm();
}

std::string Session::log_path() const {
  return absl::StrCat(LaunchersDirectory(context_->run_dir, context_->is_system, client_.uid), "/",
                      WorkerLogName(id_.ToHex()));
}

absl::StatusOr<ProcDescription> Session::StartProc(const SpawnRequest& request, size_t index) {
  const ProcessSpec& spec = request.specs.size() == 1 ? request.specs[0] : request.specs[index];
  MONARCH_ASSIGN_OR_RETURN(auto sockets, PacketSocket::Pair());
  ProcRecord record;
  record.description.address = ProcAddress{context_->host, context_->next_proc++, request.incarnation};
  record.description.rank = request.RankOf(index);
  record.description.mesh = request.mesh;
  record.description.rank_label = request.shape.PointLabel(record.description.rank);
  record.owner = request.owner;
  record.token = StartToken(context_->random_id());
  record.spawn_id = request.request_id;
  record.spawn_index = index;
  // The mark is the daemon's to set: leftovers are found by it.
  std::vector<std::string> env;
  for (const std::string& entry : spec.inherit_env ? InheritedEnv(spec.env) : spec.env) {
    if (!absl::StartsWith(entry, Sweeper::kMark)) env.push_back(entry);
  }
  env.push_back(absl::StrCat(Sweeper::kMark, mark_.ToHex()));
  std::string label = request.mesh;
  if (request.shape.size() > 1) absl::StrAppend(&label, "[", record.description.rank, "]");
  // First: one that was launched is known to the next daemon.
  keeper_.KeepProc(record);
  const absl::Status launched =
      launcher_->Launch(record.description.address, spec, env, record.token, label, sockets.second.fd());
  if (!launched.ok()) {
    return absl::Status(launched.code(),
                        absl::StrCat("argv, env and boot are too large: ", std::string(launched.message())));
  }
  record.connection =
      NativeConnection::Start(context_->loop, std::move(sockets.first), this, context_->connection_limits());
  record.connection->proc = record.description.address.proc;
  ++context_->workers;
  return procs_.Add(std::move(record)).description;
}

void Session::OnLaunched(uint64_t proc, int64_t pid) {
  ProcRecord* record = procs_.Find(proc);
  if (record == nullptr || record->is_client) return;
  record->description.pid = pid;
  record->description.phase = std::max(record->description.phase, ProcPhase::kLaunched);
  hosts_.TellProcUp(record->description, record->owner);
  spawner_.OnLaunched(*record, context_->loop->Now());
  Rearm();
}

void Session::OnLaunchFailed(uint64_t proc, const std::string& step, const std::string& message) {
  ProcRecord* record = procs_.Find(proc);
  if (record == nullptr || record->is_client) return;
  FailureEvent event = BaseEvent(*record);
  event.kind = FailureKind::kStartFailed;
  event.phase = ProcPhaseName(ProcPhase::kAccepted);
  event.reason = absl::StrCat(step, ": ", message);
  // Never introduced to anybody, so there is nobody to tell but who asked for it.
  record->death = event;
  record->description.phase = ProcPhase::kExited;
  context_->events->Add(id_.ToHex(), "proc_ended", event);
  AnswerWaiting(*record);
  Bury(proc, event);
  Rearm();
}

void Session::OnDying(uint64_t proc, const ProcExit& exit) {
  ProcRecord* record = procs_.Find(proc);
  if (record == nullptr || record->is_client || !record->alive()) return;
  if (exit.code != 0 || exit.signal != 0) {
    Die(proc, exit);
    return Rearm();
  }
  context_->loop->RunAfter(kUnknownCauseWait, [this, alive = std::weak_ptr<bool>(alive_), proc, exit] {
    if (!alive.lock()) return;
    Die(proc, exit);
    Rearm();
  });
}

void Session::OnExited(uint64_t proc, const ProcExit& exit) {
  ProcRecord* record = procs_.Find(proc);
  if (record == nullptr || record->is_client) return;
  if (record->alive()) Die(proc, exit);
  record = procs_.Find(proc);
  if (record == nullptr) return;
  FillEnd(*record, exit, &*record->death);
  const FailureEvent event = *record->death;
  Broadcast(ControlType::kProcDetail, record->description.address, event);
  context_->events->Complete(id_.ToHex(), event);
  Bury(proc, event);
  Rearm();
}

FailureEvent Session::BaseEvent(const ProcRecord& record) const {
  FailureEvent event;
  event.mesh = record.description.mesh;
  event.rank = record.description.rank;
  event.rank_label = record.description.rank_label;
  event.actor = ActorAddress{record.description.address, kAgentActor};
  event.host_name = context_->host_name;
  event.pid = record.description.pid;
  event.unix_ms = NowUnixMs();
  return event;
}

void Session::FillEnd(const ProcRecord& record, const ProcExit& exit, FailureEvent* event) const {
  const StopMachine::Action used = record.stop ? record.stop->strongest() : StopMachine::Action::kNone;
  // What a process has said of its end stays: it may have been ended otherwise before it came to that.
  const bool said = exit.confirmed && event->kind == FailureKind::kSignalled && event->code != exit.signal;
  if (!said) event->code = exit.signal != 0 ? exit.signal : exit.code;
  event->stderr_tail = exit.stderr_tail;
  event->backtrace = exit.backtrace;
  event->reason.clear();
  if (!record.stop_reason.empty() && !said &&
      !CrashedInItsStop(record, exit, state_ != SessionState::kRunning)) {
    event->kind = FailureKind::kStopped;
    event->reason = record.stop_reason;
    if (exit.signal == SIGKILL && used == StopMachine::Action::kKill) {
      absl::StrAppend(&event->reason, "; it had to be killed");
    } else if (exit.signal != 0) {
      absl::StrAppend(&event->reason, "; ended by signal ", exit.signal);
    } else if (exit.code != 0) {
      absl::StrAppend(&event->reason, "; it left with status ", exit.code);
    }
  } else if (said || exit.signal != 0) {
    const bool out_of_memory = !said && exit.memory_kill.answer == MemoryVerdict::Answer::kYes;
    event->kind = out_of_memory ? FailureKind::kOutOfMemory : FailureKind::kSignalled;
    if (!said) event->reason = exit.memory_kill.why;
    // A crash report says first what happened, behind the signal's name.
    const std::string head = exit.backtrace.substr(0, exit.backtrace.find('\n'));
    if (const size_t at = head.find(": "); at != std::string::npos) event->reason = head.substr(at + 2);
  } else if (exit.code != 0) {
    event->kind = FailureKind::kExited;
  } else if (exit.confirmed) {
    event->kind = FailureKind::kStopped;
    event->reason = "exited with status 0";
  } else {
    event->kind = FailureKind::kExited;
    event->reason = "its cause is not known yet";
  }
  if (!record.stop_reason.empty() && event->kind != FailureKind::kStopped) {
    absl::StrAppend(&event->reason, event->reason.empty() ? "" : " ",
                    "(while it was being stopped: ", record.stop_reason, ")");
  }
}

void Session::Die(uint64_t proc, const ProcExit& exit) {
  ProcRecord* record = procs_.Find(proc);
  if (record == nullptr || !record->alive()) return;
  // What it sent before it died was sent: frames to others go first, then the news of its death.
  if (record->connection) {
    const std::shared_ptr<NativeConnection> connection = record->connection;
    connection->DrainNow();
    connection->Close();
    record = procs_.Find(proc);
    if (record == nullptr || !record->alive()) return;
    record->connection.reset();
  }
  FailureEvent event = BaseEvent(*record);
  const ProcAddress address = record->description.address;
  for (const ActorRecord& actor : actors_.TakeOf(address))
    record->lost_actors.push_back({actor.mesh, actor.rank, actor.actor_class});
  FillEnd(*record, exit, &event);
  record->death = event;
  record->description.phase = ProcPhase::kExited;
  // Before all else: who waits for it learns of it by this.
  Broadcast(ControlType::kProcDead, address, event);
  AnswerWaiting(*record);
  introducer_.Remove(proc);
  pauses_.Remove(address);
  LogInfo("daemon", "process ended")
      .With("session", id_.ToHex())
      .With("proc", proc)
      .With("pid", event.pid)
      .With("how", event.Summary());
  context_->events->Add(id_.ToHex(), "proc_ended", event, record->lost_actors);
  hangs_.ForgetProc(address);
  spawner_.OnDied(*record, event, context_->loop->Now());
  if (!exit.confirmed) {
    StopMachine::Plan plan;
    // Nothing before that: it may be writing its crash report.
    plan.can_ask = true;
    plan.grace = kDyingMax;
    if (record->stop) {
      stopper_.Stop(*record, plan, "", context_->loop->Now());
    } else {
      record->stop.emplace(plan, context_->loop->Now());
    }
  }
  OwnerDied(address, event.Summary());
}

void Session::Bury(uint64_t proc, const FailureEvent& event) {
  ProcRecord* record = procs_.Find(proc);
  const ProcAddress address = record->description.address;
  if (record->connection) record->connection->Close();
  spawner_.OnGone(*record, event, context_->loop->Now());
  keeper_.Bury({address, event, std::move(record->lost_actors)}, record->spawn_id);
  procs_.Bury(proc);
  --context_->workers;
  stopper_.OnGone(address, event);
}

void Session::OwnerDied(const ProcAddress& owner, const std::string& what) {
  const absl::Duration now = context_->loop->Now();
  const std::string reason = absl::StrCat("its owner has ended: ", what);
  spawner_.AbandonOwnedBy(owner, reason, now);
  const absl::Duration time = absl::Milliseconds(context_->limits.session_end_kill_ms);
  for (auto& [proc, record] : procs_.all()) {
    if (record.is_client || !record.alive() || record.owner.proc != owner) continue;
    StopMachine::Plan plan;
    // What cannot clean up has no use for the time; of both nothing is left after twice as much.
    plan.can_ask = record.description.phase == ProcPhase::kReady && record.connection != nullptr;
    plan.grace = plan.can_ask ? time : absl::ZeroDuration();
    plan.kill_after = plan.can_ask ? time / 2 : time;
    stopper_.Stop(record, plan, reason, now);
  }
}

void Session::KillProc(uint64_t proc) {
  ProcRecord* record = procs_.Find(proc);
  if (record == nullptr) return;
  stopper_.Stop(*record, StopMachine::Plan{}, "its mesh could not be spawned whole", context_->loop->Now());
}

void Session::OnStopping(ProcRecord& record) {
  if (launcher_) launcher_->SetStopping(record.description.address);
  keeper_.KeepProc(record);
}

void Session::SendStop(ProcRecord& record, absl::Duration grace) {
  if (!record.connection) return;  // Told when it is back.
  record.connection->Answer(
      0, ControlType::kStop,
      {{"reason", Value(record.stop_reason)}, {"grace_ms", Value(absl::ToInt64Milliseconds(grace))}});
}

void Session::SendSignal(ProcRecord& record, int signal) {
  if (launcher_) launcher_->Signal(record.description.address, signal);
}

void Session::StopHere(const StopRequest& request, Stopper::Reply reply) {
  StopRequest filled = request;
  if (filled.grace <= absl::ZeroDuration()) filled.grace = absl::Milliseconds(context_->limits.stop_grace_ms);
  if (filled.kill_after <= absl::ZeroDuration()) {
    filled.kill_after = absl::Milliseconds(context_->limits.session_end_kill_ms);
  }
  stopper_.StopAll(procs_, filled, context_->loop->Now(), std::move(reply));
  Rearm();
}

absl::Status Session::SignalHere(const std::vector<ProcAddress>& procs, int signal) {
  for (const ProcAddress& address : procs) {
    ProcRecord* record = procs_.Find(address);
    if (record == nullptr || record->is_client || !record->alive()) {
      return absl::NotFoundError(
          absl::StrCat("signal ", address.ToString(), ": no living worker of this session"));
    }
  }
  for (const ProcAddress& address : procs) SendSignal(*procs_.Find(address), signal);
  return absl::OkStatus();
}

void Session::Rearm() {
  std::optional<absl::Duration> next = spawner_.NextDeadline();
  const std::optional<absl::Duration> stop = stopper_.NextDeadline(procs_);
  if (stop && (!next || *stop < *next)) next = stop;
  if (timer_ != 0) context_->loop->Cancel(timer_);
  timer_ = 0;
  if (!next) return;
  timer_ = context_->loop->RunAfter(*next - context_->loop->Now(), [this] {
    timer_ = 0;
    OnTimer();
  });
}

void Session::OnTimer() {
  spawner_.OnTime(context_->loop->Now());
  stopper_.OnTime(procs_, context_->loop->Now());
  Rearm();
}

}  // namespace monarch
