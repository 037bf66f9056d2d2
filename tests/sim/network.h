#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/scoped_fd.h"
#include "tests/sim/world.h"

namespace monarch::sim {

// The wires between hosts, as TCP over them behaves: bytes keep their order on a connection and come late, in
// pieces, all or, when it breaks, up to some byte; connections do not keep theirs among each other. A host
// dials another at a socket file of the pair, where this stands in the middle.
// Threading: confined to the simulation's thread.
class Network {
 public:
  // `dir`: empty, for socket files.
  Network(World* world, std::string dir);
  ~Network();

  // Where the daemon of `host` listens, and where `from` dials it.
  std::string ListenPath(int host) const;
  std::string DialPath(int from, int to);

  // Nothing passes between the two until `heal`; connections stay.
  void Partition(int a, int b);
  void Heal(int a, int b);
  // Connections between the two break; new ones can be made.
  void Cut(int a, int b);
  // Everything on the way to or from it is lost, and its ends of connections are never told to the others.
  void PowerOff(int host);
  // Others learn by the first that they send that their connections are void.
  void PowerOn(int host);
  // From now on, either way between the two.
  void SetDelay(int a, int b, absl::Duration least, absl::Duration most);
  size_t connections() const { return wires_.size(); }
  // What the dialled end of the `number`th connection (from 1) sends waits until it is released.
  void HoldAnswers(uint64_t number) { wires_.at(number).held = true; }
  void Release(uint64_t number);

 private:
  struct Piece {
    absl::Duration at;
    std::string bytes;  // empty: the end
  };
  struct Direction {
    std::deque<Piece> pieces;
    size_t bytes = 0;
    bool ended = false;     // no more is read
    bool finished = false;  // the end was passed on
  };
  struct Wire {
    int from;
    int to;
    ScopedFd fds[2];  // to the dialler, to the dialled
    Direction ways[2];
    bool closed[2] = {false, false};
    bool held = false;
    bool orphaned = false;  // one host lost its power meanwhile
  };
  struct Pair {
    bool partitioned = false;
    absl::Duration least = absl::Microseconds(100);
    absl::Duration most = absl::Milliseconds(2);
  };
  Pair& PairOf(int a, int b) { return pairs_[{std::min(a, b), std::max(a, b)}]; }
  void OnDial(int from, int to);
  void Open(int from, int to, ScopedFd dialler);
  void OnReady(uint64_t id, int end, uint32_t events);
  void Read(uint64_t id, int end);
  void Pump(uint64_t id, int way);
  void UpdateWatch(Wire& wire, int end);
  void Break(uint64_t id);
  void BreakWhere(const std::function<bool(const Wire&)>& wanted);

  World* const world_;
  const std::string dir_;
  std::map<std::pair<int, int>, ScopedFd> listeners_;
  std::map<std::pair<int, int>, Pair> pairs_;
  std::set<int> off_;
  std::map<uint64_t, Wire> wires_;
  uint64_t next_wire_ = 1;
};

}  // namespace monarch::sim
