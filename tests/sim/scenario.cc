#include "tests/sim/scenario.h"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace monarch::sim {
namespace {

constexpr absl::Duration kChaos = absl::Seconds(30);
// Longer than a lease, and than any answer of another host is waited for.
constexpr absl::Duration kSettle = absl::Seconds(120);
constexpr absl::Duration kEnd = absl::Seconds(60);
constexpr int kStepsMax = 14;
constexpr uint64_t kRanksMax = 4;

// From ready processes, unwinding, and ending in vain what other hosts made.
constexpr absl::Duration kSpawnMost = absl::Seconds(3 * 3 + 5 + 2);
// Beyond grace and kill_after: KILL's repetition, and the reaping.
constexpr absl::Duration kStopSlack = absl::Seconds(2);
constexpr absl::Duration kEndMost = absl::Seconds(3);

monarch::Limits SimLimits(Random* random) {
  monarch::Limits limits;
  limits.spawn_phase_ms = 3000;
  limits.stop_grace_ms = 2000;
  if (random->Chance(20)) limits.procs_per_host_max = 4 + static_cast<int64_t>(random->Below(6));
  if (random->Chance(20)) limits.procs_per_session_max = 4 + static_cast<int64_t>(random->Below(6));
  if (random->Chance(20)) limits.sessions_per_host_max = 1;
  if (random->Chance(40)) limits.ring_links_max = static_cast<int64_t>(random->Below(3));
  return limits;
}

}  // namespace

Scenario::Outcome Scenario::Run(uint64_t seed, const std::string& dir, bool echo) {
  World world(seed);
  world.set_echo(echo);
  Outcome outcome;
  {
    Scenario scenario(&world, dir);
    try {
      scenario.Play();
    } catch (const std::exception& error) {
      world.Violate("exception: ", error.what());
    }
    const Ledger& ledger = scenario.cluster_.ledger();
    outcome.spawns = ledger.spawns().size();
    outcome.stops = ledger.stops().size();
    outcome.frames = ledger.frames();
    for (const auto& spawn : ledger.spawns()) outcome.spawned += spawn->succeeded ? 1 : 0;
    for (const auto& [address, life] : ledger.lives()) outcome.deaths += life.died ? 1 : 0;
  }
  outcome.violations = world.violations();
  outcome.trace = world.trace();
  return outcome;
}

Scenario::Scenario(World* world, const std::string& dir)
    : world_(world),
      hosts_(1 + static_cast<int>(world->random().Below(4))),
      worker_trouble_(static_cast<unsigned>(world->random().Below(3) * 15)),
      network_trouble_(static_cast<unsigned>(world->random().Below(2) * 60)),
      daemon_trouble_(static_cast<unsigned>(world->random().Below(3) * 25)),
      cluster_(world, hosts_, SimLimits(&world->random()), dir,
               [this](const std::string& boot) { return PlanWorker(boot); }) {
  cluster_.ledger().set_calm(network_trouble_ == 0 && daemon_trouble_ == 0);
}

WorkerPlan Scenario::PlanWorker(const std::string&) {
  Random& random = world_->random();
  WorkerPlan plan;
  plan.until_hello =
      random.Between(absl::Milliseconds(1), absl::Milliseconds(random.Chance(10) ? 2500 : 300));
  plan.until_ready = random.Between(absl::ZeroDuration(), absl::Milliseconds(random.Chance(10) ? 2500 : 100));
  plan.until_stopped = random.Between(absl::ZeroDuration(), absl::Milliseconds(300));
  if (!random.Chance(worker_trouble_)) return plan;
  using Fate = WorkerPlan::Fate;
  constexpr Fate kFates[] = {Fate::kGood,          Fate::kGood,   Fate::kNotLaunched, Fate::kDiesUnconnected,
                             Fate::kDiesConnected, Fate::kSilent, Fate::kMute};
  plan.fate = kFates[random.Below(std::size(kFates))];
  plan.exits_with_zero = random.Chance(30);
  plan.ignores_stop = random.Chance(30);
  plan.ignores_term = random.Chance(30);
  plan.leaves_child = random.Chance(30);
  return plan;
}

void Scenario::Play() {
  const uint64_t programs = 1 + world_->random().Below(3);
  for (uint64_t i = 0; i < programs; ++i) {
    world_->After(world_->random().Between(absl::ZeroDuration(), absl::Seconds(5)),
                  [this] { StartProgram(); });
  }
  ScheduleFault();
  cluster_.RunFor(kChaos);
  MakePeace();
  cluster_.RunFor(kSettle);
  cluster_.ledger().CheckSettled();
  for (const auto& program : programs_) End(program.get());
  cluster_.RunFor(kEnd);
  cluster_.CheckEmpty();
}

void Scenario::StartProgram() {
  const int host = static_cast<int>(world_->random().Below(static_cast<uint64_t>(hosts_)));
  auto program = std::make_unique<Program>();
  Program* raw = program.get();
  raw->steps_left = 3 + static_cast<int>(world_->random().Below(kStepsMax));
  raw->client = cluster_.StartClient(host, [this, raw](Member& client) {
    raw->hosts[client.host()] = client.address().host;
    ScheduleStep(raw);
  });
  if (raw->client != nullptr) programs_.push_back(std::move(program));
}

void Scenario::ScheduleStep(Program* program) {
  if (program->steps_left-- <= 0) {
    if (world_->random().Chance(40)) End(program);
    return;
  }
  world_->After(
      world_->random().Between(absl::ZeroDuration(), absl::Seconds(world_->random().Chance(30) ? 4 : 1)),
      [this, program] {
        if (peace_ || !program->client->alive()) return;
        Step(program);
        ScheduleStep(program);
      });
}

void Scenario::Step(Program* program) {
  const uint64_t what = world_->random().Below(100);
  if (what < 25) return Attach(program);
  if (what < 60) return Spawn(program, world_->random().Chance(80) ? program->client : AnyMember(*program));
  if (what < 70) return Stop(program);
  if (what < 80) return Signal(program);
  if (what < 83) return Shutdown(program);
  if (what < 86 && worker_trouble_ > 0) return Misbehave(program);
  for (int i = 0; i < 3; ++i) Talk(program);
}

void Scenario::Shutdown(Program* program) {
  const auto host =
      std::next(program->hosts.begin(), static_cast<long>(world_->random().Below(program->hosts.size())));
  if (host->first == program->client->host() || daemon_trouble_ == 0) return;
  world_->Trace("client ", program->client->pid(), " shuts host ", host->first, " down");
  cluster_.ledger().Doubt(host->first);
  ControlRequest ask;
  ask.what = ShutdownRequest{host->second, absl::Milliseconds(500), absl::Milliseconds(500)};
  cluster_.Ask(program->client, std::move(ask), [this, to = host->first](const ControlAnswer& answer) {
    world_->Trace("host ", to, " is shut down: ", answer.status.ToString());
    world_->After(absl::Seconds(3), [this, to] { cluster_.StartDaemon(to); });
  });
}

void Scenario::Misbehave(Program* program) {
  Member* member = AnyMember(*program);
  if (member->is_client() || !member->welcome()) return;
  world_->Trace(member->address().ToString(), " misbehaves");
  if (world_->random().Chance(50)) return member->SendGarbage();
  member->CloseConnection();
}

void Scenario::Attach(Program* program) {
  const int to = static_cast<int>(world_->random().Below(static_cast<uint64_t>(hosts_)));
  Member* client = program->client;
  if (to == client->host()) return;
  ControlRequest request;
  request.what = AttachRequest{"unix:" + cluster_.network().DialPath(client->host(), to),
                               world_->random().Between(absl::Milliseconds(100), absl::Seconds(5))};
  world_->Trace("client ", client->pid(), " attaches host ", to);
  cluster_.Ask(client, std::move(request), [this, program, client, to](const ControlAnswer& answer) {
    world_->Trace("client ", client->pid(), " has host ", to, ": ", answer.status.ToString());
    if (answer.status.ok()) program->hosts[to] = answer.host.host;
  });
}

void Scenario::Spawn(Program* program, Member* asker) {
  Ledger::Spawn* spawn = cluster_.ledger().NewSpawn();
  spawn->asker = asker;
  spawn->most = kSpawnMost;
  spawn->ranks = 1 + world_->random().Below(kRanksMax);
  SpawnRequest request;
  request.request_id = spawn->id;
  request.mesh = spawn->mesh;
  request.shape = *Shape::Create({"ranks"}, *NDSlice::RowMajor({spawn->ranks}));
  const bool spread = world_->random().Chance(60);
  for (size_t i = 0; i < spawn->ranks; ++i) {
    auto host = program->hosts.find(asker->host());
    if (spread)
      host =
          std::next(program->hosts.begin(), static_cast<long>(world_->random().Below(program->hosts.size())));
    if (host == program->hosts.end()) host = program->hosts.begin();
    spawn->hosts.push_back(host->first);
    request.hosts.push_back(host->second);
    ProcessSpec spec;
    spec.argv = {"sim"};
    spec.boot = absl::StrCat(spawn->id, "/", i);
    request.specs.push_back(std::move(spec));
  }
  request.owner = ActorAddress{asker->address(), kRootActor};
  spawn->expected = world_->random().Chance(10) ? 2 : 1;
  world_->Trace(asker->address().ToString(), " asks for ", spawn->id, " of ", spawn->ranks);
  for (int i = 0; i < spawn->expected; ++i) {
    ControlRequest ask;
    ask.what = request;
    cluster_.Ask(asker, std::move(ask), [this, program, spawn](const ControlAnswer& answer) {
      SpawnResult result = answer.spawn;
      if (!answer.status.ok()) result.error.status = answer.status;
      const bool first = spawn->answers == 0;
      cluster_.ledger().OnSpawned(spawn, result);
      if (first) program->workers.insert(program->workers.end(), spawn->procs.begin(), spawn->procs.end());
    });
  }
}

void Scenario::Stop(Program* program) {
  if (program->workers.empty()) return;
  Ledger::Stop* stop = cluster_.ledger().NewStop();
  stop->asker = program->client;
  for (const ProcAddress& worker : program->workers) {
    if (stop->procs.empty() || world_->random().Chance(40)) stop->procs.push_back(worker);
  }
  StopRequest request;
  request.procs = stop->procs;
  request.grace = world_->random().Between(absl::Milliseconds(1), absl::Seconds(2));
  request.kill_after = world_->random().Between(absl::Milliseconds(1), absl::Seconds(1));
  request.reason = "enough";
  stop->most = request.grace + request.kill_after + kStopSlack;
  world_->Trace("client ", stop->asker->pid(), " stops ", stop->procs.size());
  ControlRequest ask;
  ask.what = std::move(request);
  cluster_.Ask(stop->asker, std::move(ask), [this, stop](const ControlAnswer& answer) {
    if (answer.status.ok()) return cluster_.ledger().OnStopped(stop, answer.ends);
    ++stop->answers;
  });
}

void Scenario::Signal(Program* program) {
  if (program->workers.empty()) return;
  ControlRequest ask;
  ask.what = SignalRequest{{program->workers[world_->random().Below(program->workers.size())]},
                           world_->random().Chance(70) ? SIGKILL : SIGTERM};
  cluster_.Ask(program->client, std::move(ask), [](const ControlAnswer&) {});
}

void Scenario::Talk(Program* program) {
  Member* speaker = AnyMember(*program);
  if (speaker == nullptr || !speaker->welcome() || program->workers.empty()) return;
  const ProcAddress peer = world_->random().Chance(20)
                               ? program->client->address()
                               : program->workers[world_->random().Below(program->workers.size())];
  if (peer == speaker->address()) return;
  speaker->Connect(peer);
  for (int i = 0; i < 8; ++i) {
    const size_t bytes = world_->random().Chance(40) ? 1 + world_->random().Below(300'000) : 0;
    const bool last = world_->random().Chance(worker_trouble_ / 6);
    world_->After(world_->random().Between(absl::ZeroDuration(), absl::Seconds(3)),
                  [speaker, peer, bytes, last] {
                    if (!speaker->alive()) return;
                    speaker->SendFrame(peer, bytes);
                    if (last && !speaker->is_client()) speaker->Die(0, SIGSEGV);
                  });
  }
}

Member* Scenario::Find(const ProcAddress& address) {
  const auto& lives = cluster_.ledger().lives();
  const auto found = lives.find(address);
  return found == lives.end() || !found->second.process->alive() ? nullptr : found->second.process;
}

Member* Scenario::AnyMember(const Program& program) {
  if (!program.workers.empty()) {
    Member* worker = Find(program.workers[world_->random().Below(program.workers.size())]);
    if (worker != nullptr && !worker->cut_off()) return worker;
  }
  return program.client;
}

void Scenario::End(Program* program) {
  Member* client = program->client;
  if (!client->alive()) return;
  world_->After(kEndMost, [this, client] { cluster_.ledger().CheckEnded(*client); });
  if (world_->random().Chance(50) && program->client->welcome() && !program->client->cut_off()) {
    world_->Trace("client ", program->client->pid(), " says goodbye");
    return program->client->Goodbye();
  }
  program->client->Die(0, SIGKILL);
}

void Scenario::ScheduleFault() {
  world_->After(world_->random().Between(absl::Milliseconds(100), absl::Seconds(3)), [this] {
    if (peace_) return;
    Fault();
    ScheduleFault();
  });
}

void Scenario::NetworkFault(int a, int b) {
  Random& random = world_->random();
  cluster_.ledger().Doubt(a);
  cluster_.ledger().Doubt(b);
  const uint64_t what = random.Below(3);
  if (what == 0) {
    world_->Trace("hosts ", a, " and ", b, ": connections cut");
    return cluster_.network().Cut(a, b);
  }
  if (what == 1) {
    world_->Trace("hosts ", a, " and ", b, ": slow");
    return cluster_.network().SetDelay(a, b, absl::Milliseconds(1),
                                       random.Between(absl::Milliseconds(5), absl::Milliseconds(900)));
  }
  const absl::Duration time =
      random.Between(absl::Milliseconds(100), absl::Seconds(random.Chance(30) ? 45 : 8));
  world_->Trace("hosts ", a, " and ", b, ": apart for ", absl::FormatDuration(time));
  cluster_.network().Partition(a, b);
  world_->After(time, [this, a, b] {
    world_->Trace("hosts ", a, " and ", b, ": together");
    cluster_.network().Heal(a, b);
  });
}

void Scenario::Fault() {
  Random& random = world_->random();
  const int host = static_cast<int>(random.Below(static_cast<uint64_t>(hosts_)));
  const int other = static_cast<int>(random.Below(static_cast<uint64_t>(hosts_)));
  if (random.Chance(30))
    cluster_.Freeze(host, random.Between(absl::Milliseconds(1), absl::Milliseconds(100)));
  if (random.Chance(network_trouble_) && host != other) NetworkFault(host, other);
  if (random.Chance(worker_trouble_)) {
    std::vector<Member*> workers;
    for (const auto& [address, life] : cluster_.ledger().lives()) {
      if (!life.process->is_client() && life.process->alive()) workers.push_back(life.process);
    }
    if (!workers.empty()) workers[random.Below(workers.size())]->Die(0, SIGKILL);
  }
  if (!random.Chance(daemon_trouble_)) return;
  const absl::Duration pause = random.Between(absl::Milliseconds(50), absl::Seconds(8));
  switch (random.Below(6)) {
    case 0:
      cluster_.CrashDaemon(host);
      return world_->After(pause, [this, host] { cluster_.StartDaemon(host); });
    case 1:
      cluster_.PowerOff(host);
      return world_->After(pause, [this, host] { cluster_.PowerOn(host); });
    case 2:
      return cluster_.KillLauncher(host);
    case 3:
      cluster_.StopDaemon(host);
      return world_->After(pause + absl::Seconds(3), [this, host] { cluster_.StartDaemon(host); });
    default:
      return cluster_.Freeze(host, random.Between(absl::Milliseconds(1), pause));
  }
}

void Scenario::MakePeace() {
  world_->Trace("peace");
  peace_ = true;
  for (int a = 0; a < hosts_; ++a) {
    cluster_.PowerOn(a);
    cluster_.StartDaemon(a);
    for (int b = 0; b < a; ++b) {
      cluster_.network().Heal(a, b);
      cluster_.network().SetDelay(a, b, absl::Microseconds(100), absl::Milliseconds(2));
    }
  }
}

}  // namespace monarch::sim
