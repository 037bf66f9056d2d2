#include "tests/sim/launcher.h"

#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace monarch::sim {
namespace {

constexpr absl::Duration kKillAfter = absl::Seconds(1);

}  // namespace

size_t ProcessTable::KillMarked(const std::string& mark, const Process* spared) {
  size_t killed = 0;
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = *processes_[i];
    if (!process.alive() || process.mark() != mark || &process == spared) continue;
    process.Die(0, SIGKILL);
    ++killed;
  }
  return killed;
}

void ProcessTable::KillAll() {
  for (size_t i = 0; i < processes_.size(); ++i) processes_[i]->Die(0, SIGKILL);
}

size_t ProcessTable::alive() const {
  return static_cast<size_t>(std::count_if(processes_.begin(), processes_.end(),
                                           [](const auto& process) { return process->alive(); }));
}

SimLauncher::SimLauncher(World* world, Ledger* ledger, ProcessTable* table, int host, const std::string& mark,
                         PacketSocket socket, PlanWorker plan)
    : Process(world, host, mark),
      ledger_(ledger),
      table_(table),
      plan_(std::move(plan)),
      daemon_(
          std::make_unique<Mailbox>(world, std::move(socket), [this](Packet* packet) { OnPacket(packet); })),
      told_until_(world->Now()) {}

void SimLauncher::OnDeath() {
  daemon_.reset();
  if (client_.valid()) world().outside().Unwatch(client_.get());
  client_.reset();
  // The kernel's word to children whose parent ends.
  for (auto& [proc, child] : children_) child.member->Die(0, SIGKILL);
}

void SimLauncher::OnPacket(Packet* packet) {
  if (packet == nullptr) return Begin(kKillAfter);
  const absl::StatusOr<ControlMessage> message = DecodeControl(packet->bytes);
  MONARCH_CHECK(message.ok());
  switch (message->type) {
    case ControlType::kSetup:
      return Setup(*message, packet);
    case ControlType::kLaunch:
      return Launch(*message, packet);
    case ControlType::kSignal: {
      const auto child = children_.find(*ProcAddressFromValue(message->body["proc"]));
      if (child != children_.end())
        child->second.member->Signal(static_cast<int>(*message->body["signal"].AsInt()));
      return;
    }
    case ControlType::kEndSession:
      end_request_ = message->request;
      return Begin(absl::Milliseconds(*message->body["kill_after_ms"].AsInt()));
    default:
      return;
  }
}

void SimLauncher::Setup(const ControlMessage& message, Packet* packet) {
  const absl::StatusOr<LauncherSetup> setup = ParseLauncherSetup(message.body);
  MONARCH_CHECK(setup.ok() && packet->fds.size() >= 3);
  session_ = setup->session;
  client_ = std::move(packet->fds[0]);
  const absl::Status watched = world().outside().WatchFd(client_.get(), EPOLLIN, [this](uint32_t) {
    world().outside().Unwatch(client_.get());
    Begin(kKillAfter);
  });
  MONARCH_CHECK(watched.ok());
  daemon_->Send(ControlType::kOk, message.request, {}, {world().segment()});
}

void SimLauncher::Fail(const ProcAddress& proc, const std::string& step) {
  daemon_->Send(ControlType::kLaunchFailed, 0,
                *ToBody(LaunchFailure{proc, step, ENOENT, "it does not"}).map());
}

void SimLauncher::Launch(const ControlMessage& message, Packet* packet) {
  const absl::StatusOr<LaunchRequest> request = ParseLaunchRequest(message.body);
  MONARCH_CHECK(request.ok() && packet->fds.size() == 1);
  if (ladder_.begun()) return Fail(request->proc, "session");
  const WorkerPlan plan = plan_(request->boot);
  Random& random = world().random();
  if (plan.fate == WorkerPlan::Fate::kNotLaunched) {
    auto socket = std::make_shared<ScopedFd>(std::move(packet->fds[0]));
    return After(random.Between(absl::Milliseconds(1), absl::Milliseconds(5)),
                 [this, proc = request->proc, socket] { Fail(proc, "exec"); });
  }
  Member* member = table_->Add(
      std::make_unique<Member>(&world(), ledger_, host(), mark(), PacketSocket(std::move(packet->fds[0]))));
  const ProcAddress proc = request->proc;
  children_[proc].member = member;
  ledger_->OnLaunch(proc, member, request->boot);
  member->on_death = [this, proc](int code, int signal) {
    ledger_->OnDeath(proc);
    if (alive()) OnChildDeath(proc, code, signal);
  };
  Id128 token;
  MONARCH_CHECK(request->token.size() == sizeof(token));
  token = *Id128FromValue(Value(Value::Bytes{request->token}));
  member->StartWorker(proc, StartToken(token), plan);
  if (plan.leaves_child) table_->Add(std::make_unique<Process>(&world(), host(), mark()));
  told_until_ =
      std::max(told_until_, world().Now()) + random.Between(absl::ZeroDuration(), absl::Milliseconds(1));
  After(told_until_ - world().Now(), [this, proc, pid = member->pid()] {
    daemon_->Send(ControlType::kLaunched, 0, {{"proc", ToValue(proc)}, {"pid", Value(int64_t{pid})}});
  });
}

void SimLauncher::OnChildDeath(const ProcAddress& proc, int code, int signal) {
  Random& random = world().random();
  const ExitStatus status{code, signal, false};
  told_until_ =
      std::max(told_until_, world().Now()) + random.Between(absl::ZeroDuration(), absl::Milliseconds(1));
  if (random.Chance(80)) {
    const bool unknown = random.Chance(10);
    After(told_until_ - world().Now(), [this, proc, status, unknown] {
      daemon_->Send(ControlType::kDying, 0,
                    *ToBody(WorkerDying{proc, unknown ? ExitStatus() : status}).map());
    });
  }
  // Its memory is torn down meanwhile.
  const absl::Duration reaped =
      std::max(told_until_, world().Now() + random.Between(absl::Milliseconds(1),
                                                           absl::Milliseconds(random.Chance(10) ? 400 : 20)));
  After(reaped - world().Now(), [this, proc, status] {
    children_.at(proc).reaped = true;
    WorkerExit exit;
    exit.proc = proc;
    exit.status = status;
    exit.stderr_tail = "last words";
    daemon_->Send(ControlType::kExited, 0, *ToBody(exit).map());
    if (ladder_.begun()) Advance();
  });
}

void SimLauncher::Begin(absl::Duration kill_after) {
  if (!alive()) return;
  const bool first = ladder_.Begin(world().Now(), kill_after);
  if (first) {
    world().Trace("host ", host(), ": launcher ", pid(), " ends its session");
    for (auto& [proc, child] : children_) child.member->Signal(SIGTERM);
  }
  After(absl::ZeroDuration(), [this] { Advance(); });
}

void SimLauncher::Advance() {
  if (ladder_.gone()) return;
  const auto unreaped = std::count_if(children_.begin(), children_.end(),
                                      [](const auto& entry) { return !entry.second.reaped; });
  if (ladder_.ShouldSweep(world().Now(), static_cast<size_t>(unreaped))) {
    const size_t found = table_->KillMarked(mark(), this) + static_cast<size_t>(unreaped);
    if (ladder_.Swept(world().Now(), found)) {
      daemon_->Send(ControlType::kSessionGone, end_request_, {{"killed", Value(0)}});
      return After(world().random().Between(absl::ZeroDuration(), absl::Milliseconds(5)),
                   [this] { Die(0, 0); });
    }
  }
  if (const auto wake = ladder_.WakeAt()) After(*wake - world().Now(), [this] { Advance(); });
}

absl::StatusOr<StartedLauncher> SimLauncherHost::Start(const SessionId& session, uid_t) {
  auto pair = PacketSocket::Pair();
  MONARCH_CHECK(pair.ok());
  SimLauncher* launcher = table_->Add(std::make_unique<SimLauncher>(
      world_, ledger_, table_, host_, session.ToHex(), std::move(pair->second), plan_));
  world_->Trace("host ", host_, ": launcher ", launcher->pid(), " of ", session.ToHex().substr(0, 8));
  return StartedLauncher{launcher->pid(), launcher->Pidfd(), std::move(pair->first)};
}

void SimSweeper::Sweep(const SessionId& session, absl::AnyInvocable<void(int)> done) {
  loop_->RunAfter(world_->random().Between(absl::ZeroDuration(), absl::Milliseconds(10)),
                  [this, alive = std::weak_ptr<bool>(alive_), session, done = std::move(done)]() mutable {
                    if (!alive.lock()) return;
                    done(static_cast<int>(table_->KillMarked(session.ToHex(), nullptr)));
                  });
}

}  // namespace monarch::sim
