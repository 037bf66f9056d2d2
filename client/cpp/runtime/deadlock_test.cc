#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/cpp/runtime/runtime_fixture.h"
#include "message/value.h"

namespace monarch {
namespace {

std::string Meta(const std::string& method) {
  return *EncodeValue(Value::List{method, Value::List{}, Value::List{}});
}

std::shared_ptr<Inbox> Start(Runtime& from, uint64_t sender, const std::vector<CallTarget>& targets,
                             const std::string& method) {
  auto call = from.OpenCall(sender, targets.size());
  const std::string meta = Meta(method);
  MONARCH_CHECK(
      from.Send(sender, FrameKind::kCall, targets, {PayloadKind::kValue, meta, {}}, call.get()).ok());
  return call;
}

// The first answer; waits without a limit, as an endpoint does.
Message Await(Runtime& runtime, Inbox& call) {
  MONARCH_CHECK(runtime.Wait(call, absl::InfiniteDuration()).ok());
  return *call.TryPop();
}

std::string CycleOf(const Message& answer) {
  const auto meta = DecodeValue(answer.view.meta);
  return meta.ok() && answer.header.kind == FrameKind::kException ? (*meta)["deadlock"].ToString() : "none";
}

// Answers "ask" by asking the next one, with the cycle that is told there, and anything else at once.
// Threading: confined to its test.
class Asker {
 public:
  Asker(Runtime& runtime, uint64_t id, const std::string& name)
      : runtime_(runtime),
        actor_(
            runtime, id, [this](const Message& m) { Handle(m); }, Named(name)) {
    runtime.SetEndpointNamer([] { return "ask"; });
  }
  void Ask(std::vector<CallTarget> next) { next_ = std::move(next); }
  ActorAddress address() const { return actor_.address(); }

 private:
  static Runtime::ActorInfo Named(const std::string& name) {
    Runtime::ActorInfo info;
    info.name = name;
    return info;
  }
  void Handle(const Message& message) {
    if (message.header.kind != FrameKind::kCall) return;
    std::string answer = "free";
    if (message.view.meta == Meta("ask")) {
      const auto call = Start(runtime_, address().actor, next_, "ask");
      const Message came = Await(runtime_, *call);
      answer = came.header.kind == FrameKind::kReply ? TextOf(came) : CycleOf(came);
      runtime_.CloseInbox(*call);
    }
    MONARCH_CHECK(runtime_.Reply(message, FrameKind::kReply, OnePart(answer)).ok());
  }

  Runtime& runtime_;
  std::vector<CallTarget> next_;  // set before the first message
  TestActor actor_;
};

TEST_CASE("actors of several processes that wait for each other are told so") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  Runtime& c = cluster.Add();
  Runtime& client = cluster.Add();
  Asker first(a, 60, "first"), second(b, 61, "second"), third(c, 62, "third");
  first.Ask({{second.address(), 0}});
  second.Ask({{third.address(), 0}});
  third.Ask({{first.address(), 0}});
  const auto call = Start(client, kRootActor, {{first.address(), 0}}, "ask");
  const auto answer = Next(client, *call);
  REQUIRE(answer.ok());
  CHECK(TextOf(*answer) == "['first.ask', 'second.ask', 'third.ask', 'first.ask']");
}

TEST_CASE("an actor that waits for itself is told so") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Asker self(a, 63, "self"), other(a, 64, "other");
  self.Ask({{self.address(), 0}});
  other.Ask({{self.address(), 0}});
  const auto behind = Start(a, kRootActor, {{other.address(), 0}}, "ask");
  const auto answer = Next(a, *behind);
  REQUIRE(answer.ok());
  CHECK(TextOf(*answer) == "['self.ask', 'self.ask']");
}

TEST_CASE("one member of a mesh may close the cycle") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  std::atomic<bool> open{false};
  TestActor busy(b, 65, [&](const Message& m) {
    MONARCH_CHECK(Eventually([&] { return open.load(); }));
    static_cast<void>(b.Reply(m, FrameKind::kReply, OnePart("late")));
  });
  Asker caller(a, 66, "caller"), back(b, 67, "back");
  caller.Ask({{busy.address(), 0}, {back.address(), 1}});
  back.Ask({{caller.address(), 0}});
  const auto call = Start(a, kRootActor, {{caller.address(), 0}}, "ask");
  const auto answer = Next(a, *call);
  open = true;
  REQUIRE(answer.ok());
  // `back` was told; what it then answered is the first answer that the caller got.
  CHECK(TextOf(*answer) == "['caller.ask', 'back.ask', 'caller.ask']");
}

TEST_CASE("a wait for any of several answers is in no cycle") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  std::atomic<bool> open{false};
  TestActor busy(b, 68, [&](const Message& m) {
    MONARCH_CHECK(Eventually([&] { return open.load(); }));
    MONARCH_CHECK(b.Reply(m, FrameKind::kReply, OnePart("late")).ok());
  });
  Asker back(b, 69, "back"), known(b, 70, "known");
  known.Ask({{known.address(), 0}});
  bool asked = false;
  TestActor caller(a, 71, [&](const Message& m) {
    if (m.header.port_id == 0) return;
    if (asked || m.view.meta != Meta("ask")) {
      MONARCH_CHECK(a.Reply(m, FrameKind::kReply, OnePart("free")).ok());
      return;
    }
    asked = true;
    const auto call = Start(a, 71, {{busy.address(), 0}, {back.address(), 1}}, "ask");
    call->SetAnyAnswerEndsWait();
    const std::string first = TextOf(Await(a, *call));
    a.CloseInbox(*call);
    MONARCH_CHECK(a.Reply(m, FrameKind::kReply, OnePart(first)).ok());
  });
  back.Ask({{caller.address(), 0}});
  const auto call = Start(a, kRootActor, {{caller.address(), 0}}, "ask");
  // A true deadlock beside them takes its course meanwhile, twice.
  for (int i = 0; i < 2; ++i) {
    const auto beside = Start(b, kRootActor, {{known.address(), 0}}, "ask");
    REQUIRE(Next(b, *beside).ok());
  }
  open = true;
  const auto answer = Next(a, *call);
  REQUIRE(answer.ok());
  CHECK(TextOf(*answer) == "late");
  // Then `back` has its answer, too, and serves the next.
  const auto next = Start(b, kRootActor, {{back.address(), 0}}, "other");
  CHECK(Next(b, *next).ok());
}

}  // namespace
}  // namespace monarch
