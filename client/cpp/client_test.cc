// The client library as a program uses it: this binary is its own worker, under a private daemon of the real
// kind.
#define CATCH_CONFIG_RUNNER
#include "monarch/client.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/scoped_fd.h"
#include "client/cpp/client_fixture.h"
#include "message/doorbell.h"

namespace monarch {
namespace {

// --- what runs in the workers ---

std::vector<int64_t> Counts() {
  const DoorbellCounts& counts = doorbell_counts();
  return {static_cast<int64_t>(counts.futex_wakes), static_cast<int64_t>(counts.bell_writes)};
}

class Probe : public Actor {
 public:
  int64_t Add(int64_t a, int64_t b) { return a + b; }
  int64_t Rank() const { return static_cast<int64_t>(rank()); }
  int64_t Pid() const { return getpid(); }
  std::vector<int64_t> Cost() const { return Counts(); }
  absl::Status Refuse(const std::string& why) { return absl::NotFoundError(why); }
  int64_t Throw(const std::string& what) { throw std::runtime_error(what); }
  int64_t ThrowInt() { throw 7; }  // NOLINT: what user code may do
  void Append(int64_t value) { log_.push_back(value); }
  std::vector<int64_t> Log() const { return log_; }
  Value::Bytes Blob(int64_t bytes) { return {std::string(static_cast<size_t>(bytes), 'x')}; }
  std::string Text(const std::string& hex) { return hex == "ff" ? "\xff" : hex; }
  std::vector<int64_t> Process() const {
    rlimit files = {};
    getrlimit(RLIMIT_NOFILE, &files);
    const mode_t mask = umask(0);
    umask(mask);
    return {static_cast<int64_t>(files.rlim_cur), static_cast<int64_t>(mask)};
  }

 private:
  std::vector<int64_t> log_;
};

// Waits until the file is there.
class Blocker : public Actor {
 public:
  bool Block(const std::string& path) {
    const SystemClock clock;
    const absl::Duration deadline = clock.Now() + kPatience;
    while (access(path.c_str(), F_OK) != 0) {
      if (clock.Now() > deadline) return false;
      poll(nullptr, 0, 1);
    }
    return true;
  }
};

class Stillborn : public Actor {
 public:
  Stillborn() { throw std::runtime_error("no such model"); }
};

// Tells of its end by a file.
class Witness : public Actor {
 public:
  explicit Witness(std::string path) : path_(std::move(path)) {}
  void OnStop(const FailureEvent* failure) override {
    std::ofstream(path_) << (failure == nullptr ? "stopped" : "failed");
  }
  int64_t Ready() { return 1; }

 private:
  const std::string path_;
};

// Neither a call nor its end comes to an end.
class Endless : public Actor {
 public:
  void OnStop(const FailureEvent* /*failure*/) override { Stay(); }
  bool Stay() {
    for (;;) pause();
  }
  int64_t Pid() const { return getpid(); }
};

ActorTypes Types() {
  ActorTypes types;
  types.Add<Probe>("Probe")
      .Endpoint("add", &Probe::Add)
      .Endpoint("rank", &Probe::Rank)
      .Endpoint("pid", &Probe::Pid)
      .Endpoint("cost", &Probe::Cost)
      .Endpoint("refuse", &Probe::Refuse)
      .Endpoint("throw", &Probe::Throw)
      .Endpoint("throw_int", &Probe::ThrowInt)
      .Endpoint("append", &Probe::Append)
      .Endpoint("log", &Probe::Log)
      .Endpoint("blob", &Probe::Blob)
      .Endpoint("text", &Probe::Text)
      .Endpoint("process", &Probe::Process);
  types.Add<Blocker>("Blocker").Endpoint("block", &Blocker::Block);
  types.Add<Stillborn>("Stillborn");
  types.Add<Endless>("Endless").Endpoint("stay", &Endless::Stay).Endpoint("pid", &Endless::Pid);
  types.Add<Witness, std::string>("Witness").Endpoint("ready", &Witness::Ready);
  return types;
}

// --- the tests ---

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("calls, slices and errors") {
  Rig rig;
  const ProcMesh procs = rig.Procs({{"hosts", 1}, {"gpus", 3}});
  const ActorMesh probes = Spawn(procs, "probes", "Probe");

  CHECK(Must(probes.Call<int64_t>("rank").Get(kPatience)).values() == std::vector<int64_t>{0, 1, 2});
  CHECK(Must(probes.Call<int64_t>("add", 2, 3).Get(kPatience)).values() == std::vector<int64_t>{5, 5, 5});
  const auto last = probes.Select("gpus", 1, 3);
  REQUIRE(last.ok());
  const auto ranks = Must(last->Call<int64_t>("rank").Get(kPatience));
  CHECK(ranks.values() == std::vector<int64_t>{1, 2});
  CHECK(ranks.shape() == last->shape());
  const int64_t chosen = Must(last->Choose<int64_t>("rank").Get(kPatience));
  CHECK((chosen == 1 || chosen == 2));
  CHECK(absl::IsInvalidArgument(probes.CallOne<int64_t>("rank").Get().status()));
  CHECK(absl::IsNotFound(probes.At("racks", 0).status()));

  const auto one = probes.At("gpus", 0);
  REQUIRE(one.ok());
  CHECK(one->CallOne<int64_t>("refuse", "none here").Get(kPatience).status() ==
        absl::NotFoundError("none here"));
  CHECK(absl::IsNotFound(one->CallOne<int64_t>("nonsense").Get(kPatience).status()));
  CHECK(absl::IsInvalidArgument(one->CallOne<int64_t>("add", 1).Get(kPatience).status()));
  CHECK(absl::IsInvalidArgument(one->CallOne<std::string>("rank").Get(kPatience).status()));
  // None of this did the actor any harm.
  CHECK(Must(one->CallOne<int64_t>("add", 1, 1).Get(kPatience)) == 2);
  CHECK(rig.failures.size() == 0);
  CHECK(procs.Stop().ok());
}

TEST_CASE("exceptions and odd results go to the caller") {
  Rig rig;
  const ActorMesh probe = Spawn(rig.Procs({}), "probe", "Probe");
  const absl::Status thrown = probe.CallOne<int64_t>("throw", "broken").Get(kPatience).status();
  CHECK(thrown.code() == absl::StatusCode::kUnknown);
  CHECK(Message(thrown).find("broken") != std::string::npos);
  CHECK_FALSE(FailureOf(thrown).ok());
  CHECK(probe.CallOne<int64_t>("throw_int").Get(kPatience).status().code() == absl::StatusCode::kUnknown);
  // A result that no value can hold, and one that no frame holds: both are answers.
  const absl::Status no_text = probe.CallOne<std::string>("text", "ff").Get(kPatience).status();
  CHECK(Message(no_text).find("the result cannot be sent: value: text that is not UTF-8") !=
        std::string::npos);
  CHECK(Must(probe.CallOne<Value::Bytes>("blob", 1 << 20).Get(kPatience)).data.size() == 1 << 20);
  CHECK(Must(probe.CallOne<std::string>("text", "alive").Get(kPatience)) == "alive");
}

TEST_CASE("arguments that no value can hold are refused at the call") {
  Rig rig;
  const ActorMesh probe = Spawn(rig.Procs({}), "probe", "Probe");
  CHECK(absl::IsInvalidArgument(probe.CallOne<std::string>("text", "\xff").Get(kPatience).status()));
  CHECK(absl::IsInvalidArgument(probe.Broadcast("\xff")));
  CHECK(absl::IsInvalidArgument(probe.Stop("\xff").Get(kPatience)));
}

TEST_CASE("broadcasts and calls of one sender arrive in order") {
  Rig rig;
  const ActorMesh probes = Spawn(rig.Procs({{"n", 2}}), "probes", "Probe");
  std::vector<int64_t> sent;
  for (int64_t i = 0; i < 500; ++i) {
    sent.push_back(i);
    REQUIRE(probes.Broadcast("append", i).ok());
  }
  const auto logs = Must(probes.Call<std::vector<int64_t>>("log").Get(kPatience));
  CHECK(logs[0] == sent);
  CHECK(logs[1] == sent);
}

TEST_CASE("a failure that nobody waits for is the owner's") {
  Rig rig;
  const ActorMesh probe = Spawn(rig.Procs({}), "lonely", "Probe");
  REQUIRE(probe.Broadcast("throw", "unheard").ok());
  const auto event = rig.failures.First();
  REQUIRE(event.has_value());
  CHECK(event->kind == FailureKind::kException);
  CHECK(event->mesh == "lonely");
  CHECK(event->reason.find("unheard") != std::string::npos);
  // The actor is gone, and says why.
  const absl::Status later = probe.CallOne<int64_t>("rank").Get(kPatience).status();
  CHECK(absl::IsUnavailable(later));
  CHECK(Must(FailureOf(later)).kind == FailureKind::kException);
}

TEST_CASE("a constructor that throws fails its actor") {
  Rig rig;
  const ProcMesh procs = rig.Procs({});
  const ActorMesh dead = Spawn(procs, "dead", "Stillborn");
  const auto event = rig.failures.First();
  REQUIRE(event.has_value());
  CHECK(event->reason.find("no such model") != std::string::npos);
  CHECK(absl::IsUnavailable(dead.CallOne<int64_t>("rank").Get(kPatience).status()));
  // Its process is as good as before.
  CHECK(Must(Spawn(procs, "other", "Probe").CallOne<int64_t>("rank").Get(kPatience)) == 0);
}

TEST_CASE("a worker that is killed") {
  Rig rig;
  const ProcMesh procs = rig.Procs({{"n", 2}});
  const ActorMesh probes = Spawn(procs, "probes", "Probe");
  const ActorMesh blockers = Spawn(procs, "blockers", "Blocker");
  const auto pending = blockers.At("n", 1).value().CallOne<bool>("block", TempPath("never"));
  CHECK(absl::IsDeadlineExceeded(pending.Get(absl::Milliseconds(1)).status()));
  REQUIRE(kill(static_cast<pid_t>(procs.pids()[1]), SIGKILL) == 0);
  const absl::Status ended = pending.Get(kPatience).status();
  CHECK(absl::IsUnavailable(ended));
  const FailureEvent event = Must(FailureOf(ended));
  CHECK(event.kind == FailureKind::kSignalled);
  CHECK(event.code == SIGKILL);
  CHECK(event.rank == 1);
  const auto told = rig.failures.First();
  REQUIRE(told.has_value());
  CHECK(told->code == SIGKILL);
  // A later call fails, too; the other rank goes on.
  const auto each = Must(probes.Call<int64_t>("rank").GetEach(kPatience));
  CHECK(Must(each[0]) == 0);
  CHECK(absl::IsUnavailable(each[1].status()));
  CHECK_FALSE(procs.Spawn("more", "Probe").ok());
}

TEST_CASE("stop of a slice, and supervision of the rest") {
  Rig rig;
  const ProcMesh first = rig.Procs({});
  const ProcMesh procs = rig.Procs({{"n", 3}});  // Of the same name.
  const ActorMesh probes = Spawn(procs, "probes", "Probe");
  CHECK(first.Stop().ok());
  CHECK(probes.At("n", 0).value().Stop().Get(kPatience).ok());
  CHECK(absl::IsUnavailable(probes.At("n", 0).value().CallOne<int64_t>("rank").Get(kPatience).status()));
  CHECK(procs.At("n", 1).value().Stop().ok());
  CHECK(rig.failures.size() == 0);
  REQUIRE(kill(static_cast<pid_t>(procs.pids()[2]), SIGKILL) == 0);
  const auto event = rig.failures.First();
  REQUIRE(event.has_value());
  CHECK(event->mesh == "probes");
  CHECK(event->rank == 2);
  CHECK(event->code == SIGKILL);
}

TEST_CASE("meshes of processes with one name are supervised each") {
  Rig rig;
  const ProcMesh first = rig.Procs({});
  const ProcMesh second = rig.Procs({});
  CHECK(first.Stop().ok());
  REQUIRE(kill(static_cast<pid_t>(second.pids()[0]), SIGKILL) == 0);
  const auto event = rig.failures.First();
  REQUIRE(event.has_value());
  CHECK(event->code == SIGKILL);
}

TEST_CASE("a stop runs OnStop and is no failure") {
  Rig rig;
  const std::string path = TempPath("witness");
  const ProcMesh procs = rig.Procs({});
  const ActorMesh witness = Spawn(procs, "witness", "Witness", path);
  CHECK(Must(witness.CallOne<int64_t>("ready").Get(kPatience)) == 1);
  CHECK(procs.Stop().ok());
  std::string text;
  std::ifstream(path) >> text;
  CHECK(text == "stopped");
  CHECK(rig.failures.size() == 0);
}

TEST_CASE("many actors in one process, and one that blocks") {
  Rig rig;
  const ProcMesh procs = rig.Procs({});
  const std::string path = TempPath("unblock");
  unlink(path.c_str());
  const ActorMesh blocker = Spawn(procs, "blocker", "Blocker");
  const auto blocked = blocker.CallOne<bool>("block", path);
  // It is alone in its process and runs; whoever comes now is served all the same.
  CHECK(absl::IsDeadlineExceeded(blocked.Get(absl::Milliseconds(20)).status()));
  std::vector<ActorMesh> probes;
  for (int i = 0; i < 40; ++i) probes.push_back(Spawn(procs, "probe" + std::to_string(i), "Probe"));
  for (int64_t round = 0; round < 3; ++round) {
    std::vector<Future<int64_t>> sums;
    for (const ActorMesh& probe : probes) sums.push_back(probe.CallOne<int64_t>("add", round, 1));
    for (const auto& sum : sums) CHECK(Must(sum.Get(kPatience)) == round + 1);
  }
  for (const ActorMesh& probe : probes) CHECK(probe.Stop().Get(kPatience).ok());
  std::ofstream(path) << "x";
  CHECK(Must(blocked.Get(kPatience)));
}

TEST_CASE("a second waiter keeps its own time limit") {
  Rig rig;
  const std::string path = TempPath("second");
  unlink(path.c_str());
  const ActorMesh blocker = Spawn(rig.Procs({}), "blocker", "Blocker");
  const auto pending = blocker.CallOne<bool>("block", path);
  bool first_ok = false;  // Catch2 counts assertions of the main thread only
  std::thread first([&] { first_ok = pending.Get(kPatience).ok(); });
  CHECK(absl::IsDeadlineExceeded(pending.Get(absl::Milliseconds(50)).status()));
  CHECK(absl::IsDeadlineExceeded(pending.Get(absl::Milliseconds(50)).status()));
  std::ofstream(path) << "x";
  CHECK(Must(pending.Get(kPatience)));
  first.join();
  CHECK(first_ok);
}

TEST_CASE("a worker has its program's limits and mask") {
  const mode_t before = umask(027);
  rlimit files = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const rlimit wanted = {777, files.rlim_max};
  Rig rig;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &wanted) == 0);
  const ProcMesh procs = rig.Procs({});
  setrlimit(RLIMIT_NOFILE, &files);
  umask(before);
  const ActorMesh probe = Spawn(procs, "probe", "Probe");
  CHECK(Must(probe.CallOne<std::vector<int64_t>>("process").Get(kPatience)) ==
        std::vector<int64_t>{777, 027});
}

TEST_CASE("a limit for a worker that cannot be set is refused with what is missing") {
  const Rig rig;
  SpawnOptions options;
  options.memory_bytes_max = int64_t{1} << 40;
  options.pids_max = 100'000;
  const auto procs = rig.client->this_host().SpawnProcs({{"gpus", 2}}, options);
  if (procs.ok()) return;  // this session has a cgroup of its own
  CHECK_THAT(std::string(procs.status().message()), Catch::Contains("memory_max, pids_max: "));
  CHECK(rig.Procs({{"gpus", 2}}).size() == 2);
}

TEST_CASE("the session ends with its client, whatever refers to it") {
  std::optional<ProcMesh> procs;
  std::optional<ActorMesh> probe;
  {
    Rig rig;
    procs = rig.Procs({});
    probe = Spawn(*procs, "probe", "Probe");
  }
  CHECK(kill(static_cast<pid_t>(procs->pids()[0]), 0) != 0);
  CHECK(absl::IsUnavailable(probe->CallOne<int64_t>("rank").Get(kPatience).status()));
}

TEST_CASE("what does not end with the session is killed, and the client has not waited for it") {
  const bool in_call = GENERATE(false, true);
  CAPTURE(in_call);
  ScopedFd worker;
  {
    Rig rig;
    const ActorMesh endless = Spawn(rig.Procs({}), "endless", "Endless");
    const auto pid = static_cast<pid_t>(Must(endless.CallOne<int64_t>("pid").Get(kPatience)));
    worker = ScopedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    REQUIRE(worker.valid());
    if (in_call) REQUIRE(endless.Broadcast("stay").ok());
  }
  pollfd ended{worker.get(), POLLIN, 0};
  CHECK(poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1);
}

TEST_CASE("a forked child may drop the client") {
  Rig rig;
  const ActorMesh probe = Spawn(rig.Procs({}), "probe", "Probe");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const absl::Status refused = probe.CallOne<int64_t>("rank").Get(kPatience).status();
    rig.client.reset();
    _exit(absl::IsFailedPrecondition(refused) ? 0 : 1);
  }
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + kPatience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (clock.Now() > deadline) kill(child, SIGKILL);
    poll(nullptr, 0, 1);
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(Must(probe.CallOne<int64_t>("rank").Get(kPatience)) == 0);
}

TEST_CASE("a client may be dropped by its own failure handler") {
  Mutex mu;
  CondVar changed;
  bool dropped = false;
  std::unique_ptr<Client> client;
  ConnectOptions options;
  options.address = "private";
  options.monarchd_path = Monarchd();
  options.on_failure = [&](const FailureEvent&) {
    client.reset();
    MutexLock lock(mu);
    dropped = true;
    changed.NotifyAll();
    return true;
  };
  auto connected = Client::Connect(std::move(options));
  REQUIRE(connected.ok());
  client = *std::move(connected);
  auto procs = client->this_host().SpawnProcs({});
  REQUIRE(procs.ok());
  REQUIRE(kill(static_cast<pid_t>(procs->pids()[0]), SIGKILL) == 0);
  MutexLock lock(mu);
  while (!dropped) changed.Wait(mu);
}

TEST_CASE("a call costs one wake-up each way, and no bell") {
  Rig rig;
  const ActorMesh probe = Spawn(rig.Procs({}), "probe", "Probe");
  const auto cost = [&] { return Must(probe.CallOne<std::vector<int64_t>>("cost").Get(kPatience)); };
  cost();  // Links are made, and the pool has its leader.
  constexpr int64_t kCalls = 200;
  const std::vector<int64_t> worker_before = cost();
  const std::vector<int64_t> own_before = Counts();
  for (int64_t i = 0; i < kCalls; ++i)
    CHECK(Must(probe.CallOne<int64_t>("add", i, 1).Get(kPatience)) == i + 1);
  const std::vector<int64_t> own = Counts();
  const std::vector<int64_t> worker = cost();
  CHECK(own[0] - own_before[0] <= kCalls);
  CHECK(worker[0] - worker_before[0] <= kCalls + 1);
  CHECK(own[1] - own_before[1] == 0);
  CHECK(worker[1] - worker_before[1] == 0);
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  if (monarch::IsWorker(argc, argv)) return monarch::RunWorker(monarch::Types());
  return Catch::Session().run(argc, argv);
}
