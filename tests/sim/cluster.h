#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control_peers.h"
#include "daemon/event_log.h"
#include "daemon/peer_listener.h"
#include "daemon/session_manager.h"
#include "tests/sim/control.h"
#include "tests/sim/launcher.h"
#include "tests/sim/ledger.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"
#include "tests/sim/world.h"

namespace monarch::sim {

// One daemon: the parts that monarchd is composed of, over simulated ones.
// Threading: confined to the simulation's thread.
class SimDaemon {
 public:
  struct Parts {
    World* world;
    Ledger* ledger;
    Network* network;
    ControlCalls* calls;
    ProcessTable* table;
    int host;
    SimLauncher::PlanWorker plan;
  };
  SimDaemon(const Parts& parts, const HostId& id, const monarch::Limits& limits);
  ~SimDaemon();

  SimLoop& loop() { return loop_; }
  DaemonContext& context() { return context_; }
  SessionManager& sessions() { return *sessions_; }
  size_t control_connections() const { return control_.connections(); }
  size_t control_peers() const { return control_peers_.size(); }
  // Ends all sessions; then it is done.
  void Leave(const std::string& reason);
  bool done() const { return loop_.stopped(); }

 private:
  SimLoop loop_;
  EventLog events_{1000};
  ControlPeers control_peers_;
  SimLauncherHost launchers_;
  SimSweeper sweeper_;
  DaemonContext context_;
  ControlServer control_;
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<PeerListener> listener_;
  bool leaving_ = false;
};

// Hosts, their processes and the network, in one thread and one virtual time.
// Threading: confined to the simulation's thread.
class Cluster {
 public:
  // `dir`: empty, for socket files.
  Cluster(World* world, int hosts, const monarch::Limits& limits, std::string dir,
          SimLauncher::PlanWorker plan);
  ~Cluster();

  int size() const { return static_cast<int>(hosts_.size()); }
  Network& network() { return network_; }
  Ledger& ledger() { return ledger_; }
  ControlCalls& calls() { return calls_; }
  // Null: there is none at present.
  SimDaemon* daemon(int host) { return hosts_[static_cast<size_t>(host)].daemon.get(); }
  ProcessTable& table(int host) { return *hosts_[static_cast<size_t>(host)].table; }

  // --- faults ---
  void CrashDaemon(int host);
  void StartDaemon(int host);
  // With everything on it.
  void PowerOff(int host);
  void PowerOn(int host);
  // The daemon gets no time to run.
  void Freeze(int host, absl::Duration time);
  void KillLauncher(int host);
  // The daemon is told to stop.
  void StopDaemon(int host);

  // A client on that host; null if there is no daemon. `welcomed` runs once it may ask for something.
  Member* StartClient(int host, std::function<void(Member&)> welcomed);
  // A request of a process to its daemon. No answer if either ends before; `lost`, at once, in that case
  // where the daemon has none.
  void Ask(Member* asker, ControlRequest request, absl::AnyInvocable<void(ControlAnswer)> reply);
  // How often a daemon was started there: an answer comes from none but the one that was asked.
  int generation(int host) const { return hosts_[static_cast<size_t>(host)].generation; }

  // Runs for so long.
  void RunFor(absl::Duration time);
  // What is left when it should be nothing.
  void CheckEmpty();

 private:
  struct Host {
    HostId id;
    std::unique_ptr<ProcessTable> table;
    std::unique_ptr<SimDaemon> daemon;
    int generation = 0;
    absl::Duration frozen_until;
    bool powered = true;
  };
  bool RunReady();
  bool Spins() const;
  std::optional<absl::Duration> NextEvent() const;

  World* const world_;
  const monarch::Limits limits_;
  const SimLauncher::PlanWorker plan_;
  Ledger ledger_;
  ControlCalls calls_;
  Network network_;
  std::vector<Host> hosts_;
};

}  // namespace monarch::sim
