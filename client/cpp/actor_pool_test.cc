#include "client/cpp/actor_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "client/cpp/runtime/runtime_fixture.h"
#include "message/control_message.h"

namespace monarch {
namespace {

std::atomic<uint64_t> stopped_as{0};

class Big : public Actor {
 public:
  std::string Get(int64_t bytes) { return std::string(static_cast<size_t>(bytes), 'x'); }
  void OnStop(const FailureEvent*) override { stopped_as = CurrentActor(); }
};

// A pool in a process of its own kind, as RunWorker has it. Threading: confined to its test.
class Worker {
 public:
  explicit Worker(Runtime& runtime) : runtime_(runtime) {
    types_.Add<Big>("Big").Endpoint("get", &Big::Get);
    pool_ = std::make_unique<ActorPool>(&runtime_, &types_, 2);
  }
  // Waits for one create message and takes it.
  void TakeOne() {
    auto task = runtime_.NextTask(kTestTimeout);
    REQUIRE(task.ok());
    REQUIRE(task->kind == RuntimeTask::Kind::kCreateActor);
    pool_->Add(*std::move(task));
  }
  void Stop() { pool_->StopAll("test ends"); }

 private:
  Runtime& runtime_;
  ActorTypes types_;
  std::unique_ptr<ActorPool> pool_;
};

struct Rig {
  Cluster cluster{false};
  Runtime& client = cluster.Add();
  Runtime& other;
  Worker worker;
  const ActorAddress actor{other.self(), 77};

  explicit Rig(const Limits& limits) : other(cluster.Add(limits)), worker(other) {
    const std::string meta =
        *EncodeValue(Value::Map{{"actor", actor.actor},
                                {"class", "Big"},
                                {"rank", 0},
                                {"owner", ToValue(ActorAddress{client.self(), kRootActor})}});
    const std::string args = *EncodeValue(Value::List{});
    const absl::Span<const uint8_t> part(reinterpret_cast<const uint8_t*>(args.data()), args.size());
    const CallTarget agent{{other.self(), kAgentActor}, 0};
    const auto call = client.OpenCall(kRootActor, 1);
    REQUIRE(client
                .Send(kRootActor, FrameKind::kCreate, {&agent, 1}, {PayloadKind::kValue, meta, {&part, 1}},
                      call.get())
                .ok());
    worker.TakeOne();
    const auto created = Next(client, *call);
    REQUIRE(created.ok());
    REQUIRE(created->header.kind == FrameKind::kReply);
  }
  Message Get(int64_t bytes) {
    const std::string meta = *EncodeValue(Value::List{"get", Value::List{}, Value::List{}});
    const std::string args = *EncodeValue(Value::List{bytes});
    const absl::Span<const uint8_t> part(reinterpret_cast<const uint8_t*>(args.data()), args.size());
    const auto call = client.OpenCall(kRootActor, 1);
    const CallTarget target{actor, 0};
    REQUIRE(client
                .Send(kRootActor, FrameKind::kCall, {&target, 1}, {PayloadKind::kValue, meta, {&part, 1}},
                      call.get())
                .ok());
    auto answer = Next(client, *call);
    INFO(answer.status().ToString());
    REQUIRE(answer.ok());
    return *std::move(answer);
  }
};

TEST_CASE("a result that cannot be sent is an error at the caller") {
  Limits limits;
  limits.segment_bytes_max = 1 << 20;
  limits.send_wait_ms = 100;
  Rig rig(limits);
  CHECK(rig.Get(100).header.kind == FrameKind::kReply);
  const Message too_large = rig.Get(2 << 20);
  CHECK(too_large.header.kind == FrameKind::kException);
  const auto meta = DecodeValue(too_large.view.meta);
  REQUIRE(meta.ok());
  CHECK((*meta)["type"].AsString().value_or("") == "RESOURCE_EXHAUSTED");
  // No room now: both results together do not fit, and the first is held here.
  const Message held = rig.Get(900 << 10);
  CHECK(held.header.kind == FrameKind::kReply);
  const Message full = rig.Get(900 << 10);
  CHECK(full.header.kind == FrameKind::kException);
  CHECK(rig.Get(100).header.kind == FrameKind::kReply);
  rig.worker.Stop();
}

TEST_CASE("OnStop runs as its actor when the process stops") {
  Rig rig{Limits()};
  CHECK(rig.Get(1).header.kind == FrameKind::kReply);
  rig.worker.Stop();
  CHECK(stopped_as == rig.actor.actor);
  CHECK(rig.Get(1).header.kind == FrameKind::kFailure);
}

}  // namespace
}  // namespace monarch
