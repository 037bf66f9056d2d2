// Session: its launcher, taking over what another daemon began, and processes that come back.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/session.h"
#include "daemon/system_users.h"

namespace monarch {
namespace {

// The processes of which a launcher has told anything.
std::set<uint64_t> Told(const std::vector<ControlMessage>& news) {
  std::set<uint64_t> procs;
  for (const ControlMessage& message : news) {
    if (const auto proc = ProcAddressFromValue(message.body["proc"]); proc.ok()) procs.insert(proc->proc);
  }
  return procs;
}

SessionIdentity IdentityOf(const AdoptedSession& adopted) {
  return {.id = adopted.state.session,
          .mark = adopted.state.session,
          .client = adopted.book.client_address,
          .is_guest = false,
          .ticket = {}};
}

// Oldest first, as they were when they came.
void AdoptEvents(const std::string& session, const SessionBook& book, EventLog* log) {
  std::vector<std::pair<int64_t, absl::AnyInvocable<void()>>> events;
  for (const KeptEnd& end : book.ends) {
    const int64_t at = end.event.unix_ms;
    events.emplace_back(at, [&, at] { log->Add(session, "proc_ended", end.event, end.lost_actors, at); });
  }
  for (const FailureEvent& event : book.failures)
    events.emplace_back(event.unix_ms, [&] { log->Add(session, "actor_failed", event, {}, event.unix_ms); });
  for (const KeptHang& hang : book.hangs) {
    const FailureEvent& event = hang.notice.event;
    events.emplace_back(event.unix_ms, [&] { log->AddHang(session, hang.notice, event.unix_ms); });
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [at, add] : events) add();
}

}  // namespace

absl::Status Session::EnsureLauncher() {
  if (launcher_) return absl::OkStatus();
  if (context_->is_system)
    MONARCH_RETURN_IF_ERROR(PrepareUserDirectory(context_->run_dir, client_.uid).status());
  MONARCH_ASSIGN_OR_RETURN(StartedLauncher process, context_->launchers->Start(mark_, client_.uid));
  context_->sweeper->AddKnownChild(process.pid);
  LogInfo("daemon", "launcher started").With("session", id_.ToHex()).With("pid", process.pid);
  launcher_ = std::make_unique<LauncherLink>(context_->loop, std::move(process), mark_, this);
  std::vector<int> fds = {client_.pidfd.get(), client_.out.get(), client_.err.get()};
  if (client_.output_stream.valid()) fds.push_back(client_.output_stream.get());
  absl::StatusOr<LauncherResume> resume = absl::CancelledError("not wanted");
  if (context_->survives && !is_guest_) {
    LauncherState state;
    state.session = id_;
    state.host = context_->host;
    state.pid = launcher_->pid();
    state.socket =
        LauncherSocketPath(LaunchersDirectory(context_->run_dir, context_->is_system, client_.uid), id_);
    resume = SaveLauncher(context_->run_dir, std::move(state),
                          absl::Milliseconds(context_->limits.daemon_absence_ms));
    if (!resume.ok())
      LogError("daemon", "the session ends with this daemon").With("error", resume.status().ToString());
  }
  launcher_->Setup(client_.pid, log_path(), context_->limits, fds, resume.ok() ? &*resume : nullptr);
  if (resume.ok()) {
    keeper_.Use(launcher_.get());
    keeper_.KeepClient(client_, client_address_);
    keeper_.KeepProc(*procs_.Find(client_address_));
  }
  // A client on another host has no memory here.
  if (const ProcRecord* client = procs_.Find(client_address_))
    launcher_->AddDoorbell(client_address_, true, client->shared.doorbell.get());
  return absl::OkStatus();
}

Session::Session(DaemonContext* context, AdoptedSession adopted, OpenControl open_control,
                 absl::AnyInvocable<void(Session*)> gone)
    : Session(context, IdentityOf(adopted), std::move(open_control), std::move(gone)) {
  client_ = std::move(adopted.book.client);
  context_->sweeper->AddKnownChild(adopted.process.pid);
  launcher_ = std::make_unique<LauncherLink>(context_->loop, std::move(adopted.process), mark_, this,
                                             std::move(adopted.board));
  keeper_.Use(launcher_.get());
  LogInfo("daemon", "session adopted")
      .With("session", id_.ToHex())
      .With("client_pid", client_.pid)
      .With("launcher_pid", launcher_->pid())
      .With("procs", adopted.book.procs.size());
  context_->events->Add(id_.ToHex(), "session_adopted");
  AdoptProcs(&adopted);
  WatchClient();
}

void Session::AdoptProcs(AdoptedSession* adopted) {
  SessionBook& book = adopted->book;
  const std::set<uint64_t> told = Told(adopted->news);
  std::vector<uint64_t> cut_off;
  std::vector<uint64_t> stopping;
  for (const KeptEnd& end : book.ends) procs_.RecordEnd(end.proc, end.event);
  AdoptEvents(id_.ToHex(), book, context_->events);
  for (ProcRecord& record : book.procs) {
    const ProcAddress address = record.description.address;
    // No daemon before this one gave out the numbers that it will.
    if (address.host != context_->host || address.proc >= context_->next_proc ||
        procs_.Find(address.proc) != nullptr)
      continue;
    if (!record.is_client) {
      const AdoptionFate fate = FateOf(book, record, told.contains(address.proc));
      if (fate == AdoptionFate::kForget) {
        launcher_->Forget(ProcKey(address.proc));
        continue;
      }
      if (fate == AdoptionFate::kKill) cut_off.push_back(address.proc);
      if (fate == AdoptionFate::kKeep) record.description.phase = ProcPhase::kReady;
      if (!record.stop_reason.empty()) stopping.push_back(address.proc);
      ++context_->workers;
    }
    if (const auto token = book.control_tokens.find(address.proc); token != book.control_tokens.end()) {
      if (auto pass = context_->control_peers->Admit(token->second, {id_, address}))
        record.control = *std::move(pass);
    }
    procs_.Add(std::move(record));
  }
  for (const KeptLink& link : book.links)
    introducer_.Adopt(link.a, link.b, link.ring, link.bit_in_a, link.bit_in_b);
  keeper_.Adopt(&book, procs_);
  AdoptActors(book);
  // First, so that what follows is about processes that all know.
  for (const ControlMessage& message : adopted->news) {
    const absl::Status handled = launcher_->Handle(message);
    if (!handled.ok()) LogError("daemon", "news not understood").With("error", handled.ToString());
  }
  for (auto& [id, kept] : book.spawns) {
    std::vector<ProcDescription> procs;
    for (size_t i = 0; i < kept.count; ++i) {
      const ProcAddress address{context_->host, kept.first + i, kept.incarnation};
      ProcDescription proc;
      proc.address = address;
      proc.rank = kept.ranks.empty() ? static_cast<uint32_t>(i) : kept.ranks[i];
      proc.mesh = kept.mesh;
      proc.rank_label = kept.shape.PointLabel(proc.rank);
      if (const ProcRecord* record = procs_.Find(address)) proc.pid = record->description.pid;
      if (const FailureEvent* end = procs_.EndOf(address)) proc.pid = end->pid;
      procs.push_back(std::move(proc));
    }
    SpawnRequest request;
    request.request_id = kept.request_id;
    request.mesh = kept.mesh;
    request.shape = kept.shape;
    request.ranks = kept.ranks;
    request.incarnation = kept.incarnation;
    spawner_.AddFinished(std::move(request), std::move(procs));
  }
  for (const uint64_t proc : stopping) {
    ProcRecord* record = procs_.Find(proc);
    if (record == nullptr) continue;
    StopMachine::Plan plan;
    plan.can_ask = true;
    plan.grace = absl::Milliseconds(context_->limits.stop_grace_ms);
    plan.kill_after = absl::Milliseconds(context_->limits.session_end_kill_ms);
    stopper_.Stop(*record, plan, std::exchange(record->stop_reason, ""), context_->loop->Now());
  }
  for (const uint64_t proc : cut_off) {
    if (ProcRecord* record = procs_.Find(proc)) {
      stopper_.Stop(*record, StopMachine::Plan{}, "monarchd restarted during its spawn",
                    context_->loop->Now());
    }
  }
  Rearm();
}

// Until their processes say themselves what they hold; and for those that do not come back.
void Session::AdoptActors(const SessionBook& book) {
  for (const KeptHang& hang : book.hangs)
    hangs_.Adopt(hang.notice.event.actor, hang.began, hang.notice.hang.method);
  for (const ActorRecord& actor : book.actors) {
    ProcRecord* record = procs_.Find(actor.address.proc);
    if (record == nullptr) {
      keeper_.ForgetActor(actor.address);
    } else if (actors_.Find(actor.address) == nullptr) {
      // The list counts itself which of them have failed.
      ActorRecord listed = actor;
      listed.failed = false;
      actors_.Put(*record, std::move(listed));
      if (actor.failed) actors_.MarkFailed(procs_, actor.address);
    }
  }
}

void Session::OnSpawned(const SpawnRequest& request, const std::vector<ProcDescription>& procs) {
  if (procs.empty()) return;
  keeper_.KeepSpawn({request.request_id, request.mesh, request.shape, request.ranks, request.incarnation,
                     procs.front().address.proc, procs.size()});
}

absl::Status Session::Resume(const ControlMessage& hello, pid_t pid,
                             std::shared_ptr<NativeConnection> connection) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress self, ProcAddressFromValue(hello.body["self"]));
  MONARCH_ASSIGN_OR_RETURN(const Id128 token, Id128FromValue(hello.body["token"]));
  ProcRecord* record = procs_.Find(self);
  if (record == nullptr || !record->alive() || !record->introduced())
    return absl::NotFoundError("hello: no living process of that session has this address");
  if (token.is_zero() || token != record->control.token() || pid != record->description.pid)
    return absl::UnauthenticatedError("hello: that process is another one");
  if (record->connection) record->connection->Close();
  record->connection = std::move(connection);
  record->connection->proc = self.proc;
  record->connection->SetHandler(this);
  // It names those that it has.
  for (const ActorAddress& actor : actors_.RemoveLivingOf(*record)) keeper_.ForgetActor(actor);
  Welcome(*record, hello.request);
  TellWhatItMissed(*record);
  return absl::OkStatus();
}

void Session::TellWhatItMissed(ProcRecord& record) {
  const auto tell = [&](const ProcAddress& proc, const FailureEvent& event) {
    for (const ControlType type : {ControlType::kProcDead, ControlType::kProcDetail}) {
      record.connection->Send({type, 0, Value::Map{{"peer", ToValue(proc)}, {"event", ToValue(event)}}});
    }
  };
  for (const auto& [proc, event] : procs_.ends()) tell(proc, event);
  for (const auto& [proc, other] : procs_.all()) {
    if (!other.alive()) tell(other.description.address, *other.death);
  }
  const uint64_t self = record.description.address.proc;
  for (const KeptLink* link : keeper_.UnderWay(self)) {
    const bool is_a = link->a == self;
    const ProcRecord* peer = procs_.Find(is_a ? link->b : link->a);
    if (peer == nullptr || !peer->alive() || !peer->introduced()) continue;
    const Introducer::Introduction how{true, link->ring, link->bit_in_a, link->bit_in_b};
    SendIntroduction(record, 0, *peer, how, is_a, is_a ? 0 : 1, link->ring_fd.get());
  }
  if (record.stop && record.stop->strongest() == StopMachine::Action::kAsk)
    SendStop(record, absl::Milliseconds(context_->limits.stop_grace_ms));
}

}  // namespace monarch
