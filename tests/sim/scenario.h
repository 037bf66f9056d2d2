#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace monarch::sim {

// One run: clients that do what the seed says on hosts that fail as it says, then peace, then the end.
// Threading: confined to the simulation's thread.
class Scenario {
 public:
  struct Outcome {
    std::vector<std::string> violations;
    std::vector<std::string> trace;
    size_t spawns = 0;
    size_t spawned = 0;
    size_t stops = 0;
    size_t deaths = 0;
    size_t frames = 0;
  };
  // `dir`: empty, for socket files. `echo`: the trace goes to stderr as it comes to be.
  static Outcome Run(uint64_t seed, const std::string& dir, bool echo);

 private:
  // A session, as its client knows it.
  struct Program {
    Member* client = nullptr;
    std::map<int, HostId> hosts;       // attached, and its own
    std::vector<ProcAddress> workers;  // of spawns that succeeded
    int steps_left = 0;
  };

  Scenario(World* world, const std::string& dir);
  WorkerPlan PlanWorker(const std::string& boot);
  void Play();
  void StartProgram();
  void Step(Program* program);
  void ScheduleStep(Program* program);
  void Attach(Program* program);
  void Spawn(Program* program, Member* asker);
  void Stop(Program* program);
  void Signal(Program* program);
  void Talk(Program* program);
  void Shutdown(Program* program);
  void Misbehave(Program* program);
  void End(Program* program);
  void ScheduleFault();
  void Fault();
  void NetworkFault(int a, int b);
  void MakePeace();
  Member* AnyMember(const Program& program);
  Member* Find(const ProcAddress& address);

  World* const world_;
  const int hosts_;
  // What kinds of trouble this run has, of 0 to 100.
  const unsigned worker_trouble_;
  const unsigned network_trouble_;
  const unsigned daemon_trouble_;
  bool peace_ = false;
  std::map<std::string, WorkerPlan> plans_;
  Cluster cluster_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace monarch::sim
