#include "tests/sim/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "daemon/host_address.h"

namespace monarch::sim {
namespace {

// As monarchd's.
constexpr absl::Duration kLeaveMax = absl::Seconds(8);

}  // namespace

SimDaemon::SimDaemon(const Parts& parts, const HostId& id, const monarch::Limits& limits)
    : loop_(&parts.world->clock(), &parts.world->random()),
      launchers_(parts.world, parts.ledger, parts.table, parts.host, parts.plan),
      sweeper_(parts.world, parts.table, &loop_),
      control_(parts.calls, &context_) {
  context_.loop = &loop_;
  context_.launchers = &launchers_;
  context_.events = &events_;
  context_.control_peers = &control_peers_;
  context_.sweeper = &sweeper_;
  context_.limits = limits;
  context_.host = id;
  context_.host_name = absl::StrCat("host", parts.host);
  context_.run_dir = "/nonexistent";
  context_.started = loop_.Now();
  context_.make_host_control = [this, calls = parts.calls](ScopedFd socket, const StartToken& token) {
    return MakeSimHostControl(calls, &loop_, std::move(socket), token);
  };
  context_.leave = [this](const std::string& reason) { Leave(reason); };
  context_.random_id = [world = parts.world] { return world->NewId(); };
  context_.open_pidfd = [world = parts.world, table = parts.table](pid_t pid) -> absl::StatusOr<ScopedFd> {
    // Its own: nothing but its end ends it.
    if (pid == getpid()) return ScopedFd(*world->forever().Dup());
    for (const auto& process : table->all()) {
      if (process->pid() == pid && process->alive()) return process->Pidfd();
    }
    return absl::NotFoundError("no such process");
  };
  sessions_ = std::make_unique<SessionManager>(
      &context_,
      [this](ScopedFd socket, const std::string&) {
        control_.Serve(std::move(socket));
        return absl::OkStatus();
      },
      [this] {
        if (leaving_ && sessions_->sessions().empty()) loop_.Stop();
      });
  control_.set_sessions(sessions_.get());
  const auto address =
      HostAddress::Parse("unix:" + parts.network->ListenPath(parts.host), HostAddress::Side::kBind);
  MONARCH_CHECK(address.ok());
  auto listener = PeerListener::Start(&loop_, *address, [this](PeerListener::Connection connection) {
    sessions_->AddHost(std::move(connection));
  });
  MONARCH_CHECK(listener.ok());
  listener_ = *std::move(listener);
}

SimDaemon::~SimDaemon() = default;

void SimDaemon::Leave(const std::string& reason) {
  if (leaving_) return;
  leaving_ = true;
  sessions_->EndAll(reason);
  if (sessions_->sessions().empty()) return loop_.Stop();
  loop_.RunAfter(kLeaveMax, [this] { loop_.Stop(); });
}

Cluster::Cluster(World* world, int hosts, const monarch::Limits& limits, std::string dir,
                 SimLauncher::PlanWorker plan)
    : world_(world),
      limits_(limits),
      plan_(std::move(plan)),
      ledger_(world),
      network_(world, std::move(dir)) {
  hosts_.resize(static_cast<size_t>(hosts));
  for (int i = 0; i < hosts; ++i) {
    hosts_[static_cast<size_t>(i)].table = std::make_unique<ProcessTable>();
    StartDaemon(i);
  }
}

Cluster::~Cluster() {
  for (Host& host : hosts_) host.daemon.reset();
}

void Cluster::StartDaemon(int index) {
  Host& host = hosts_[static_cast<size_t>(index)];
  if (host.daemon || !host.powered) return;
  host.id = HostId(world_->NewId());
  ++host.generation;
  host.daemon = std::make_unique<SimDaemon>(
      SimDaemon::Parts{world_, &ledger_, &network_, &calls_, host.table.get(), index, plan_}, host.id,
      limits_);
  world_->Trace("host ", index, ": daemon starts as ", host.id.ToHex().substr(0, 8));
}

void Cluster::CrashDaemon(int index) {
  Host& host = hosts_[static_cast<size_t>(index)];
  if (!host.daemon) return;
  world_->Trace("host ", index, ": daemon crashes");
  ledger_.Doubt(index);
  host.daemon.reset();
  // What has lost its launcher, too, is out of everybody's reach.
  std::set<std::string> launched;
  for (const auto& process : host.table->all()) {
    if (process->alive() && dynamic_cast<SimLauncher*>(process.get()) != nullptr)
      launched.insert(process->mark());
  }
  for (const auto& process : host.table->all()) {
    if (!process->mark().empty() && !launched.contains(process->mark())) process->Die(0, 9);
  }
}

void Cluster::StopDaemon(int index) {
  if (daemon(index) == nullptr) return;
  world_->Trace("host ", index, ": daemon is told to stop");
  ledger_.Doubt(index);
  daemon(index)->Leave("it was told to stop");
}

void Cluster::PowerOff(int index) {
  Host& host = hosts_[static_cast<size_t>(index)];
  if (!host.powered) return;
  world_->Trace("host ", index, ": power off");
  ledger_.Doubt(index);
  host.powered = false;
  network_.PowerOff(index);
  host.daemon.reset();
  host.table->KillAll();
}

void Cluster::PowerOn(int index) {
  Host& host = hosts_[static_cast<size_t>(index)];
  if (host.powered) return;
  world_->Trace("host ", index, ": power on");
  host.powered = true;
  network_.PowerOn(index);
  StartDaemon(index);
}

void Cluster::Freeze(int index, absl::Duration time) {
  Host& host = hosts_[static_cast<size_t>(index)];
  world_->Trace("host ", index, ": daemon frozen for ", absl::FormatDuration(time));
  // Others notice no less.
  if (time >= absl::Seconds(1)) ledger_.Doubt(index);
  host.frozen_until = std::max(host.frozen_until, world_->Now() + time);
}

void Cluster::KillLauncher(int index) {
  std::vector<Process*> launchers;
  for (const auto& process : table(index).all()) {
    if (process->alive() && dynamic_cast<SimLauncher*>(process.get()) != nullptr)
      launchers.push_back(process.get());
  }
  if (launchers.empty()) return;
  ledger_.OnLauncherKilled(index);
  Process* victim = launchers[world_->random().Below(launchers.size())];
  world_->Trace("host ", index, ": launcher ", victim->pid(), " is killed");
  victim->Die(0, 9);
}

Member* Cluster::StartClient(int index, std::function<void(Member&)> welcomed) {
  SimDaemon* target = daemon(index);
  if (target == nullptr) return nullptr;
  auto pair = PacketSocket::Pair();
  MONARCH_CHECK(pair.ok());
  Member* client =
      table(index).Add(std::make_unique<Member>(world_, &ledger_, index, "", std::move(pair->first)));
  client->on_death = [this, client](int, int) { ledger_.OnDeath(client->address()); };
  world_->Trace("host ", index, ": client ", client->pid());
  target->sessions().AddPeer(pair->second.ReleaseFd(), PeerCredentials{getuid(), client->pid()}, false);
  client->StartClient(std::move(welcomed));
  return client;
}

void Cluster::Ask(Member* asker, ControlRequest request, absl::AnyInvocable<void(ControlAnswer)> reply) {
  request.token = asker->control_token();
  const int index = asker->host();
  const int generation = this->generation(index);
  const auto on_the_way = [this] {
    return world_->random().Between(absl::ZeroDuration(),
                                    absl::Milliseconds(world_->random().Chance(10) ? 50 : 2));
  };
  world_->After(on_the_way(), [this, index, generation, asker, on_the_way, request = std::move(request),
                               reply = std::move(reply)]() mutable {
    SimDaemon* target = daemon(index);
    if (target == nullptr || this->generation(index) != generation || !asker->alive()) return;
    target->loop().Post([this, target, asker, on_the_way, request = std::move(request),
                         reply = std::move(reply)]() mutable {
      ServeControl(&target->context(), &target->sessions(), request,
                   [this, asker, on_the_way, reply = std::move(reply)](ControlAnswer answer) mutable {
                     world_->After(on_the_way(),
                                   [asker, answer = std::move(answer), reply = std::move(reply)]() mutable {
                                     if (asker->alive()) reply(std::move(answer));
                                   });
                   });
    });
  });
}

bool Cluster::RunReady() {
  bool ran = false;
  const size_t first = world_->random().Below(hosts_.size());
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const size_t index = (first + i) % hosts_.size();
    Host& host = hosts_[index];
    if (!host.daemon || host.frozen_until > world_->Now()) continue;
    if (host.daemon->loop().RunUntilIdle() > 0) ran = true;
    if (!host.daemon->done()) continue;
    world_->Trace("host ", index, ": daemon has ended");
    host.daemon.reset();
  }
  return world_->outside().RunUntilIdle() > 0 || ran;
}

bool Cluster::Spins() const {
  return world_->outside().spins() || std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) {
           return host.daemon && host.daemon->loop().spins();
         });
}

std::optional<absl::Duration> Cluster::NextEvent() const {
  std::optional<absl::Duration> next = world_->outside().NextDeadline();
  for (const Host& host : hosts_) {
    if (!host.daemon) continue;
    std::optional<absl::Duration> due = host.daemon->loop().NextDeadline();
    if (host.frozen_until > world_->Now()) due = host.frozen_until;
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

void Cluster::RunFor(absl::Duration time) {
  const absl::Duration end = world_->Now() + time;
  for (;;) {
    while (RunReady()) continue;
    if (Spins()) return world_->Violate("a loop spins");
    const std::optional<absl::Duration> next = NextEvent();
    if (!next || *next > end) break;
    world_->clock().Advance(std::max(*next - world_->Now(), absl::ZeroDuration()));
  }
  world_->clock().Advance(end - world_->Now());
}

void Cluster::CheckEmpty() {
  for (int i = 0; i < size(); ++i) {
    if (const size_t left = table(i).alive(); left > 0) {
      for (const auto& process : table(i).all()) {
        if (process->alive())
          world_->Violate("host ", i, ": pid ", process->pid(), " of ", process->mark().substr(0, 8),
                          " is left");
      }
    }
    SimDaemon* left = daemon(i);
    if (left == nullptr) continue;
    if (!left->sessions().sessions().empty())
      world_->Violate("host ", i, ": ", left->sessions().sessions().size(), " sessions are left");
    if (left->context().workers != 0)
      world_->Violate("host ", i, ": ", left->context().workers, " workers are counted");
    if (left->control_peers() != 0) world_->Violate("host ", i, ": control peers are left");
    if (left->control_connections() != 0) world_->Violate("host ", i, ": control connections are left");
  }
  if (network_.connections() != 0) world_->Violate(network_.connections(), " connections are left");
}

}  // namespace monarch::sim
