#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "client/cpp/runtime/runtime_fixture.h"

namespace monarch {
namespace {

std::shared_ptr<Inbox> Call(Runtime& from, const ActorAddress& to, const std::string& text) {
  auto call = from.OpenCall(kRootActor, 1);
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

}  // namespace
}  // namespace monarch
