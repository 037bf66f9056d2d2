#include "client/cpp/runtime/deadlock_finder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace monarch {
namespace {

constexpr uint64_t kNever = UINT64_MAX;
constexpr size_t kStepsMax = 64;
constexpr size_t kTargetsMax = 3;

ProcAddress Proc(uint64_t number) { return {HostId(Id128{1, 2}), number, 0}; }

// A program of actors that call each other at random, in a world whose every step is drawn: when a message
// arrives, when a thread goes on, when a wait counts as long. The model keeps what truly happened, and when.
// Threading: confined to its test.
class Model {
 public:
  Model(uint32_t seed, size_t procs, size_t actors, bool with_cancels)
      : random_(seed), with_cancels_(with_cancels) {
    for (size_t i = 0; i < procs; ++i) worlds_.push_back(std::make_unique<World>(this, i));
    actors_.resize(actors);
    for (size_t i = 0; i < actors; ++i) actors_[i].proc = i % procs;
  }

  void Run(size_t steps) {
    for (size_t i = 0; i < 2; ++i) MakeCall(Draw(actors_.size()));
    for (size_t i = 0; i < steps; ++i) Step();
    // Then searches that nothing disturbs, until they find nothing. The first of a round may not know of all
    // waits yet.
    for (size_t before = failed_calls + 1; before != failed_calls;) {
      before = failed_calls;
      for (size_t a = 0; a < actors_.size(); ++a) {
        Settle();
        Search(a);
      }
      Settle();
    }
  }

  // Actors that wait for themselves, by the books of the model.
  size_t StuckInCycles() const {
    size_t found = 0;
    for (size_t start = 0; start < actors_.size(); ++start) {
      std::set<size_t> seen;
      std::vector<size_t> next = EdgesOf(start);
      bool back = false;
      while (!next.empty() && !back) {
        const size_t actor = next.back();
        next.pop_back();
        if (!seen.insert(actor).second) continue;
        back = actor == start;
        for (const size_t other : EdgesOf(actor)) next.push_back(other);
      }
      found += back ? 1 : 0;
    }
    return found;
  }

  size_t verdicts = 0;
  size_t false_verdicts = 0;
  size_t failed_calls = 0;

 private:
  struct Request {  // one call to one actor, as part of a call to some
    size_t callee = 0;
    uint64_t answered = kNever;  // when the answer left the callee
    bool arrived = false;        // it is at the caller
  };
  struct Call {
    size_t caller = 0;
    uint64_t sent = 0;
    std::vector<Request> requests;
    size_t Missing() const {
      return static_cast<size_t>(
          std::count_if(requests.begin(), requests.end(), [](const Request& r) { return !r.arrived; }));
    }
  };
  struct Wait {
    size_t call = 0;
    uint64_t begin = 0;
    uint64_t end = kNever;
    size_t missing = 0;    // when it began
    bool any = false;      // the next answer ends it
    bool limited = false;  // it may end by itself
  };
  using Item = std::pair<size_t, size_t>;  // call, rank
  struct Actor {
    size_t proc = 0;
    std::deque<Item> mailbox;
    std::optional<Item> handled;
    std::vector<size_t> open;    // own calls with answers to come
    std::optional<size_t> wait;  // that it is in
    bool is_long = false;        // the runtime knows of it
    std::set<std::pair<ProcAddress, uint64_t>> visits;
    int budget = 6;  // calls that it still makes
  };
  struct Packet {
    enum class Kind { kCall, kAnswer, kProbe } kind;
    Item item;
    Probe probe;
  };

  struct World : DeadlockFinder::World {
    World(Model* model, size_t proc) : model(model), proc(proc), finder(Proc(proc), kStepsMax, this) {}
    std::optional<DeadlockFinder::Waiting> WaitOf(uint64_t actor) override { return model->WaitOf(actor); }
    bool Visit(uint64_t actor, uint64_t, const ProcAddress& searcher, uint64_t search) override {
      return model->actors_[actor].visits.insert({searcher, search}).second;
    }
    std::optional<std::string> Queued(uint64_t actor, const ProcAddress&, uint64_t call) override {
      for (const Item& item : model->actors_[actor].mailbox) {
        if (item.first == call) return "queued";
      }
      return std::nullopt;
    }
    bool OthersAnswer(uint64_t) override { return false; }
    void Send(const ProcAddress& to, const Probe& probe) override {
      if (probe.phase == Probe::Phase::kVerdict) model->Check(probe);
      // Through the codec, as between processes.
      const auto copy = DecodeProbe(*EncodeValue(ToValue(probe)), kStepsMax);
      model->channels_[{proc, to.proc}].push_back({Packet::Kind::kProbe, {}, *copy});
    }
    void Refuse(uint64_t actor, const ProcAddress&, uint64_t call, const std::vector<std::string>&) override {
      auto& queue = model->actors_[actor].mailbox;
      const auto at =
          std::find_if(queue.begin(), queue.end(), [&](const Item& i) { return i.first == call; });
      if (at == queue.end()) return;
      const Item item = *at;
      queue.erase(at);
      ++model->failed_calls;
      model->Answer(item);
    }
    void GiveUp(uint64_t call, const CallTarget& target, const std::vector<std::string>&) override {
      Request& request = model->calls_[call].requests[target.rank];
      model->failed_calls += request.arrived ? 0 : 1;
      request.arrived = true;
    }
    Model* const model;
    const size_t proc;
    DeadlockFinder finder;
  };

  size_t Draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  uint64_t Tick() { return ++clock_; }

  const Call& AwaitedBy(const Wait& wait) const { return calls_[wait.call]; }
  bool IsOver(const Wait& wait) const {
    const size_t missing = AwaitedBy(wait).Missing();
    return missing == 0 || (wait.any && missing < wait.missing);
  }

  std::optional<DeadlockFinder::Waiting> WaitOf(size_t id) const {
    const Actor& actor = actors_[id];
    if (!actor.is_long || IsOver(waits_[*actor.wait])) return std::nullopt;
    const Wait& wait = waits_[*actor.wait];
    DeadlockFinder::Waiting waiting{*actor.wait, wait.call, "a", "f", {}};
    const Call& call = AwaitedBy(wait);
    if (wait.any && call.Missing() > 1) return waiting;
    for (size_t rank = 0; rank < call.requests.size(); ++rank) {
      const Request& request = call.requests[rank];
      if (request.arrived) continue;
      waiting.owed.push_back(
          {{Proc(actors_[request.callee].proc), request.callee}, static_cast<uint32_t>(rank)});
    }
    return waiting;
  }

  // Was there a moment at which all waits of the cycle were on and none of its calls was answered?
  void Check(const Probe& probe) {
    ++verdicts;
    uint64_t from = 0;
    uint64_t until = kNever;
    for (size_t i = 0; i < probe.path.size(); ++i) {
      const WaitStep& step = probe.path[i];
      const Wait& wait = waits_[step.wait];
      const Call& call = calls_[step.call];
      const bool fits = wait.call == step.call && !wait.limited && call.caller == step.actor.actor &&
                        (!wait.any || wait.missing == 1) &&
                        step.callee == probe.path[(i + 1) % probe.path.size()].actor;
      from = fits ? std::max({from, wait.begin, call.sent}) : kNever;
      until = std::min({until, wait.end, call.requests[step.rank].answered});
    }
    if (from >= until) ++false_verdicts;
  }

  std::vector<size_t> EdgesOf(size_t id) const {
    const Actor& actor = actors_[id];
    if (!actor.wait.has_value()) return {};
    const Wait& wait = waits_[*actor.wait];
    if (wait.limited || IsOver(wait) || (wait.any && wait.missing > 1)) return {};
    std::vector<size_t> edges;
    for (const Request& request : AwaitedBy(wait).requests) {
      if (!request.arrived && actors_[request.callee].wait.has_value()) edges.push_back(request.callee);
    }
    return edges;
  }

  void MakeCall(size_t caller) {
    std::set<size_t> callees;
    for (size_t i = Draw(kTargetsMax) + 1; i > 0; --i) callees.insert(Draw(actors_.size()));
    Call call{caller, Tick(), {}};
    for (const size_t callee : callees) {
      call.requests.push_back({callee});
      channels_[{actors_[caller].proc, actors_[callee].proc}].push_back(
          {Packet::Kind::kCall, {calls_.size(), call.requests.size() - 1}, {}});
    }
    actors_[caller].open.push_back(calls_.size());
    calls_.push_back(std::move(call));
  }

  void Answer(const Item& item) {
    Request& request = calls_[item.first].requests[item.second];
    request.answered = Tick();
    channels_[{actors_[request.callee].proc, actors_[calls_[item.first].caller].proc}].push_back(
        {Packet::Kind::kAnswer, item, {}});
  }

  // One packet of any channel; each channel keeps its order.
  bool DeliverOne() {
    std::vector<std::pair<size_t, size_t>> full;
    for (const auto& [channel, packets] : channels_) {
      if (!packets.empty()) full.push_back(channel);
    }
    if (full.empty()) return false;
    const auto channel = full[Draw(full.size())];
    Packet packet = std::move(channels_[channel].front());
    channels_[channel].pop_front();
    Request* const request = packet.kind == Packet::Kind::kProbe
                                 ? nullptr
                                 : &calls_[packet.item.first].requests[packet.item.second];
    if (request == nullptr) {
      worlds_[channel.second]->finder.Handle(std::move(packet.probe));
    } else if (packet.kind == Packet::Kind::kAnswer) {
      request->arrived = true;
    } else {
      actors_[request->callee].mailbox.push_back(packet.item);
    }
    return true;
  }

  void BeginWait(size_t id) {
    Actor& actor = actors_[id];
    // For a call of this handler or of an earlier one.
    const size_t call = actor.open[Draw(actor.open.size())];
    waits_.push_back({call, Tick(), kNever, calls_[call].Missing(), Draw(4) == 0, Draw(8) == 0});
    actor.wait = waits_.size() - 1;
  }

  void EndWait(Actor* actor) {
    waits_[*actor->wait].end = Tick();
    actor->wait.reset();
    actor->is_long = false;
    actor->visits.clear();
  }

  // The actor's thread goes on, if it can.
  void Advance(size_t id) {
    Actor& actor = actors_[id];
    if (actor.wait.has_value()) {
      const Wait& wait = waits_[*actor.wait];
      const bool cancelled = with_cancels_ && Draw(50) == 0;
      if (IsOver(wait) || (wait.limited && Draw(3) == 0) || cancelled) EndWait(&actor);
      return;
    }
    std::erase_if(actor.open, [&](size_t call) { return calls_[call].Missing() == 0; });
    if (!actor.handled.has_value()) {
      if (actor.mailbox.empty()) return;
      actor.handled = actor.mailbox.front();
      actor.mailbox.pop_front();
      Tick();
      return;
    }
    const size_t choice = Draw(4);
    if (choice < 2 && actor.budget > 0) {
      --actor.budget;
      MakeCall(id);
    } else if (choice < 3 && !actor.open.empty()) {
      BeginWait(id);
    } else {
      Answer(*actor.handled);
      actor.handled.reset();
    }
  }

  void Search(size_t id) {
    Actor& actor = actors_[id];
    if (!actor.wait.has_value() || waits_[*actor.wait].limited) return;
    actor.is_long = true;
    worlds_[actor.proc]->finder.Start(id);
  }

  void Step() {
    const size_t choice = Draw(10);
    if (choice < 5) {
      DeliverOne();
    } else if (choice < 9) {
      Advance(Draw(actors_.size()));
    } else {
      Search(Draw(actors_.size()));
    }
  }

  // Until nothing moves any more.
  void Settle() {
    for (size_t quiet = 0; quiet < 20 * actors_.size();) {
      const uint64_t before = clock_;
      const bool delivered = DeliverOne();
      Advance(Draw(actors_.size()));
      quiet = delivered || clock_ != before ? 0 : quiet + 1;
    }
  }

  std::mt19937 random_;
  const bool with_cancels_;
  uint64_t clock_ = 0;
  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<Actor> actors_;
  std::vector<Call> calls_;
  std::vector<Wait> waits_;
  std::map<std::pair<size_t, size_t>, std::deque<Packet>> channels_;
};

TEST_CASE("every cycle of waits is found in random programs, and nothing else") {
  size_t failed = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    Model model(seed, 1 + seed % 4, 2 + seed % 5, false);
    model.Run(100 + seed % 400);
    INFO("seed " << seed);
    REQUIRE(model.false_verdicts == 0);
    REQUIRE(model.StuckInCycles() == 0);
    REQUIRE(model.failed_calls <= model.verdicts);
    failed += model.failed_calls;
  }
  CHECK(failed > 1000);
}

TEST_CASE("a probe is not much longer than its steps") {
  WaitStep step;
  step.callee = step.actor = {{HostId::Random(), 1, 1}, 2};
  Probe probe;
  probe.path = {step};
  CHECK(DecodeProbe(*EncodeValue(ToValue(probe)), 1).ok());
  probe.path[0].name = std::string(100'000, 'x');
  CHECK(absl::IsInvalidArgument(DecodeProbe(*EncodeValue(ToValue(probe)), 1).status()));
}

TEST_CASE("waits that are given up meanwhile are in no verdict") {
  size_t verdicts = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    Model model(seed, 1 + seed % 4, 2 + seed % 5, true);
    model.Run(100 + seed % 400);
    INFO("seed " << seed);
    REQUIRE(model.false_verdicts == 0);
    verdicts += model.verdicts;
  }
  CHECK(verdicts > 100);
}

}  // namespace
}  // namespace monarch
