#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/launcher/launcher_host.h"
#include "daemon/launcher/launcher_messages.h"
#include "daemon/launcher/stop_ladder.h"
#include "daemon/sweeper.h"
#include "tests/sim/process.h"

namespace monarch::sim {

// The processes of one host, but its daemon.
// Threading: confined to the simulation's thread.
class ProcessTable {
 public:
  template <typename T>
  T* Add(std::unique_ptr<T> process) {
    T* raw = process.get();
    processes_.push_back(std::move(process));
    return raw;
  }
  const std::vector<std::unique_ptr<Process>>& all() const { return processes_; }
  // SIGKILL to all that carry the mark, but one. How many it were.
  size_t KillMarked(const std::string& mark, const Process* spared);
  void KillAll();
  size_t alive() const;

 private:
  std::vector<std::unique_ptr<Process>> processes_;
};

// Plays monarch-launcher: speaks its protocol, and ends sessions by its StopLadder.
// Threading: confined to the simulation's thread.
class SimLauncher final : public Process {
 public:
  using PlanWorker = std::function<WorkerPlan(const std::string& boot)>;
  SimLauncher(World* world, Ledger* ledger, ProcessTable* table, int host, const std::string& mark,
              PacketSocket socket, PlanWorker plan);

 private:
  struct Child {
    Member* member = nullptr;
    bool reaped = false;
  };
  void OnDeath() override;
  void OnPacket(Packet* packet);
  void Setup(const ControlMessage& message, Packet* packet);
  void Launch(const ControlMessage& message, Packet* packet);
  void Fail(const ProcAddress& proc, const std::string& step);
  void OnChildDeath(const ProcAddress& proc, int code, int signal);
  void Begin(absl::Duration kill_after);
  void Advance();

  Ledger* const ledger_;
  ProcessTable* const table_;
  const PlanWorker plan_;
  std::unique_ptr<Mailbox> daemon_;
  ScopedFd client_;
  SessionId session_;
  std::map<ProcAddress, Child> children_;
  StopLadder ladder_{StopLadderOptions()};
  absl::Duration told_until_;  // of what it sends to the daemon, in order
  uint32_t end_request_ = 0;
};

// Threading: confined to the simulation's thread.
class SimLauncherHost final : public LauncherHost {
 public:
  SimLauncherHost(World* world, Ledger* ledger, ProcessTable* table, int host, SimLauncher::PlanWorker plan)
      : world_(world), ledger_(ledger), table_(table), host_(host), plan_(std::move(plan)) {}
  absl::StatusOr<StartedLauncher> Start(const SessionId& session, uid_t uid) override;

 private:
  World* const world_;
  Ledger* const ledger_;
  ProcessTable* const table_;
  const int host_;
  const SimLauncher::PlanWorker plan_;
};

// Threading: confined to the simulation's thread.
class SimSweeper final : public Sweeper {
 public:
  SimSweeper(World* world, ProcessTable* table, EventLoop* loop)
      : world_(world), table_(table), loop_(loop), alive_(std::make_shared<bool>(true)) {}
  void AddKnownChild(pid_t) override {}
  void RemoveKnownChild(pid_t) override {}
  void Sweep(const SessionId& session, absl::AnyInvocable<void(int killed)> done) override;

 private:
  World* const world_;
  ProcessTable* const table_;
  EventLoop* const loop_;
  const std::shared_ptr<bool> alive_;
};

}  // namespace monarch::sim
