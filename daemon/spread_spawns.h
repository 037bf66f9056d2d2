#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "daemon/process_types.h"

namespace monarch {

// Spawns over several hosts: one request for each host, all or nothing over all of them.
// Threading: confined to the control loop.
class SpreadSpawns {
 public:
  using Reply = absl::AnyInvocable<void(const SpawnResult&)>;

  class Hosts {
   public:
    virtual ~Hosts() = default;
    // The part of one host; this one included.
    virtual void SpawnOn(const HostId& host, SpawnRequest request, Reply reply) = 0;
    // Of parts that came up in vain.
    virtual void KillSpawned(const std::vector<ProcAddress>& procs, absl::AnyInvocable<void()> done) = 0;
  };

  explicit SpreadSpawns(Hosts* hosts) : hosts_(hosts) {}

  // `request.hosts` has an entry for each rank. A request whose id is known joins the first.
  void Spawn(SpawnRequest request, Reply reply);

 private:
  struct Entry {
    std::string mesh;
    size_t ranks = 0;
    size_t missing = 0;
    RequestError error;
    std::vector<ProcDescription> procs;  // in the order in which they came
    std::vector<Reply> replies;
    std::optional<SpawnResult> result;
  };
  static constexpr size_t kResultsMax = 64;

  void OnPart(const std::string& id, const SpawnResult& part);
  void Finish(const std::string& id);

  Hosts* const hosts_;
  std::map<std::string, Entry> spawns_;
  std::deque<std::string> finished_;
};

}  // namespace monarch
