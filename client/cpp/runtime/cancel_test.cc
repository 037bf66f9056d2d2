#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/cpp/runtime/runtime_fixture.h"

namespace monarch {
namespace {

std::shared_ptr<Inbox> Call(Runtime& from, const ActorAddress& to, const std::string& text,
                            absl::Duration timeout = absl::InfiniteDuration()) {
  auto call = from.OpenCall(kRootActor, 1, timeout);
  const CallTarget target = {to, 0};
  MONARCH_CHECK(from.Send(kRootActor, FrameKind::kCall, {&target, 1}, OnePart(text), call.get()).ok());
  return call;
}

TEST_CASE("a queued call can be taken out of its turn, by its caller and number") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  const auto mailbox = b.AddActor(50, {});
  REQUIRE(mailbox.ok());
  const auto first = Call(a, {b.self(), 50}, "first");
  const auto second = Call(a, {b.self(), 50}, "second");
  REQUIRE(Eventually([&] { return (*mailbox)->size() == 2; }));
  CHECK_FALSE((*mailbox)->Remove(b.self(), second->id()).has_value());
  CHECK_FALSE((*mailbox)->Remove(a.self(), second->id() + 1).has_value());
  const auto removed = (*mailbox)->Remove(a.self(), second->id());
  REQUIRE(removed.has_value());
  CHECK(TextOf(*removed) == "second");
  CHECK_FALSE((*mailbox)->Remove(a.self(), second->id()).has_value());
  const auto left = Next(b, **mailbox);
  REQUIRE(left.ok());
  CHECK(TextOf(*left) == "first");
  CHECK((*mailbox)->empty());
}

TEST_CASE("calls taken out of their turn make room in a full mailbox") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 10;
  Runtime& a = cluster.Add(limits);
  const auto mailbox = a.AddActor(51, {});
  REQUIRE(mailbox.ok());
  std::vector<std::shared_ptr<Inbox>> calls;
  for (int i = 0; i < 11; ++i) calls.push_back(Call(a, {a.self(), 51}, "x"));
  std::shared_ptr<Inbox> last;
  std::thread blocked([&] { last = Call(a, {a.self(), 51}, "last"); });
  for (int i = 0; i < 6; ++i) CHECK((*mailbox)->Remove(a.self(), calls[i]->id()).has_value());
  blocked.join();
  CHECK((*mailbox)->size() == 6);
}

TEST_CASE("cancel drops a queued call, and its payload goes back") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  const auto mailbox = b.AddActor(50, {});
  REQUIRE(mailbox.ok());
  const auto call = Call(a, {b.self(), 50}, std::string(100'000, 'x'));
  REQUIRE(Eventually([&] { return (*mailbox)->size() == 1; }));
  a.CancelCall(*call);
  CHECK(call->finished());
  CHECK(Eventually([&] { return (*mailbox)->empty(); }));
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0; }));
}

TEST_CASE("cancel shows at the call that runs, and at no other") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  const auto mailbox = b.AddActor(50, {});
  REQUIRE(mailbox.ok());
  const auto first = Call(a, {b.self(), 50}, "first");
  const auto second = Call(a, {b.self(), 50}, "second");
  const auto runs = Next(b, **mailbox);
  REQUIRE(runs.ok());
  const auto runs_too = Next(b, **mailbox);
  REQUIRE(runs_too.ok());
  const auto queued = Call(a, {b.self(), 50}, "queued");
  CHECK_FALSE((*mailbox)->IsCancelled(*runs));
  a.CancelCall(*first);
  CHECK(Eventually([&] { return (*mailbox)->IsCancelled(*runs); }));
  CHECK_FALSE((*mailbox)->IsCancelled(*runs_too));
  // A late answer is nobody's; the others are answered.
  CHECK(b.Reply(*runs, FrameKind::kReply, OnePart(std::string(50'000, 'y'))).ok());
  CHECK(b.Reply(*runs_too, FrameKind::kReply, OnePart("answer")).ok());
  const auto answer = Next(a, *second);
  REQUIRE(answer.ok());
  CHECK(TextOf(*answer) == "answer");
  CHECK(first->finished());
  CHECK(Eventually([&] { return b.stats().segment_bytes == 0; }));
  // What told of it comes before the rest of the queue.
  const auto told = Next(b, **mailbox);
  REQUIRE(told.ok());
  CHECK(told->header.kind == FrameKind::kCancel);
  CHECK(told->header.call_id == first->id());
  const auto next = Next(b, **mailbox);
  REQUIRE(next.ok());
  CHECK(TextOf(*next) == "queued");
}

TEST_CASE("a call that was given up is not sent") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  const auto mailbox = b.AddActor(50, {});
  REQUIRE(mailbox.ok());
  const auto call = a.OpenCall(kRootActor, 1);
  a.CancelCall(*call);
  const CallTarget target = {{b.self(), 50}, 0};
  CHECK(
      a.Send(kRootActor, FrameKind::kCall, {&target, 1}, OnePart(std::string(50'000, 'x')), call.get()).ok());
  CHECK(a.stats().segment_bytes == 0);
  const auto other = Call(a, {b.self(), 50}, "other");
  const auto first = Next(b, **mailbox);
  REQUIRE(first.ok());
  CHECK(TextOf(*first) == "other");
}

TEST_CASE("calls given up do not count as pending") {
  Cluster cluster(false);
  Limits limits;
  limits.calls_pending_max = 10;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add();
  REQUIRE(b.AddActor(50, {}).ok());
  for (int i = 0; i < 100; ++i) a.CancelCall(*Call(a, {b.self(), 50}, "x"));
  for (int i = 0; i < 100; ++i) {
    const auto late = Call(a, {b.self(), 50}, "x", absl::ZeroDuration());
    REQUIRE(Next(a, *late).ok());
  }
}

TEST_CASE("after its limit a call has what came, and a cancel in place of the rest") {
  Cluster cluster(GENERATE(false, true));
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add();
  TestActor answers(b, 50, [&](const Message& message) {
    MONARCH_CHECK(b.Reply(message, FrameKind::kReply, OnePart("y")).ok());
  });
  const auto silent = b.AddActor(51, {});
  REQUIRE(silent.ok());
  const CallTarget targets[] = {{{b.self(), 51}, 0}, {{b.self(), 50}, 1}, {{a.self(), 51}, 2}};
  REQUIRE(a.AddActor(51, {}).ok());
  const auto call = a.OpenCall(kRootActor, 3, absl::Milliseconds(500));
  REQUIRE(a.Send(kRootActor, FrameKind::kCall, targets, OnePart("x"), call.get()).ok());
  std::set<std::pair<uint32_t, FrameKind>> got;
  for (int i = 0; i < 3; ++i) {
    const auto answer = Next(a, *call);
    REQUIRE(answer.ok());
    got.insert({answer->header.rank, answer->header.kind});
  }
  const std::set<std::pair<uint32_t, FrameKind>> want = {
      {0, FrameKind::kCancel}, {1, FrameKind::kReply}, {2, FrameKind::kCancel}};
  CHECK(got == want);
  CHECK(call->finished());
  // Nobody begins it any more.
  CHECK_FALSE((*silent)->TryPop().has_value());
}

TEST_CASE("a call that is not sent within its limit is over, too") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  const auto call = a.OpenCall(kRootActor, 2, absl::Milliseconds(1));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const auto answer = Next(a, *call);
    REQUIRE(answer.ok());
    CHECK(answer->header.kind == FrameKind::kCancel);
    CHECK(answer->header.rank == rank);
  }
  CHECK(call->finished());
}

TEST_CASE("a call waits for room no longer than its limit") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 10;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add(limits);
  REQUIRE(a.AddActor(50, {}).ok());
  REQUIRE(b.AddActor(50, {}).ok());
  const ActorAddress to = {GENERATE(false, true) ? a.self() : b.self(), 50};
  for (bool full = false; !full;) {
    const auto call = Call(a, to, std::string(2'000, 'x'), absl::Milliseconds(200));
    full = call->ready();  // It was over when it was sent.
    if (full) CHECK(Next(a, *call)->header.kind == FrameKind::kCancel);
  }
}

TEST_CASE("a running call hears of its cancel in a mailbox that is over its bounds, too") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 4;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add(limits);
  const auto mailbox = b.AddActor(50, {});
  REQUIRE(mailbox.ok());
  const auto call = Call(a, {b.self(), 50}, "runs");
  const auto runs = Next(b, **mailbox);
  REQUIRE(runs.ok());
  for (int i = 0; i < 5; ++i) static_cast<void>(Call(a, {b.self(), 50}, "behind"));
  REQUIRE(Eventually([&] { return (*mailbox)->size() == 5; }));
  a.CancelCall(*call);
  CHECK(Eventually([&] { return (*mailbox)->IsCancelled(*runs); }));
}

TEST_CASE("calls without any time are over, however many are opened at once") {
  Cluster cluster(false);
  Runtime& a = cluster.Add();
  const auto open_many = [&] {
    for (int i = 0; i < 300; ++i) {
      const auto call = a.OpenCall(kRootActor, 1, absl::ZeroDuration());
      const auto answer = Next(a, *call);
      MONARCH_CHECK(answer.ok() && answer->header.kind == FrameKind::kCancel);
    }
  };
  std::thread other(open_many);
  open_many();
  other.join();
}

}  // namespace
}  // namespace monarch
