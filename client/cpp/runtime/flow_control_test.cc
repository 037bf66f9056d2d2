#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "client/cpp/runtime/runtime_fixture.h"

namespace monarch {
namespace {

TEST_CASE("a full mailbox pauses its senders, and memory stays flat") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_bytes_max = 1 << 20;
  Runtime& a = cluster.Add();
  Runtime& b = cluster.Add(limits);
  const size_t size = GENERATE(1'000U, 50'000U);
  const int count = 200'000'000 / static_cast<int>(size) / 20;
  const auto mailbox = b.AddActor(50, {});
  REQUIRE(mailbox.ok());
  std::thread producer([&] {
    const OnePart payload(std::string(size, 'p'));
    const CallTarget target = {{b.self(), 50}, 0};
    for (int i = 0; i < count; ++i) {
      const absl::Status sent = a.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, nullptr);
      if (!sent.ok()) LogError("test", "not sent").With("status", sent.ToString());
      MONARCH_CHECK(sent.ok());
    }
  });
  // It stops at the limit, however long nobody reads.
  CHECK(Eventually([&] { return (*mailbox)->size() * (size + Inbox::kMessageBytes) > 1'000'000; }));
  uint64_t most = 0;
  for (int i = 0; i < count; ++i) {
    most = std::max<uint64_t>(most, (*mailbox)->size() * size);
    REQUIRE(Next(b, **mailbox).ok());
  }
  producer.join();
  // What was under way when the pause was sent comes on top: a ring of frames, or a socket's buffer.
  CHECK(most < (1 << 20) + (size < 4'096 ? 600'000 : 100 * size + 600 * size));
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0; }));
}

TEST_CASE("a sender waits for room at most send_wait_ms") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 10;
  limits.send_wait_ms = 100;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add(limits);
  REQUIRE(b.AddActor(50, {}).ok());
  REQUIRE(a.AddActor(50, {}).ok());
  const bool local = GENERATE(false, true);
  const CallTarget target = {{local ? a.self() : b.self(), 50}, 0};
  absl::Status status;
  int sent = 0;
  for (; status.ok() && sent < 1'000'000; ++sent) {
    status = a.Send(kRootActor, FrameKind::kCall, {&target, 1}, OnePart("x"), nullptr);
  }
  REQUIRE(absl::IsResourceExhausted(status));
  CHECK(std::string(status.message()).find("mailbox_messages_max=10") != std::string::npos);
}

TEST_CASE("a wait for room ends now and then, for who may have missed a signal, and no later for it") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 10;
  limits.send_wait_ms = 60'000;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add(limits);
  REQUIRE(b.AddActor(50, {}).ok());
  REQUIRE(a.AddActor(50, {}).ok());
  const bool local = GENERATE(false, true);
  const CallTarget target = {{local ? a.self() : b.self(), 50}, 0};
  const OnePart part("x");
  Outgoing payload = part;
  payload.sleep_max = absl::Milliseconds(100);
  const auto send = [&] { return a.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, nullptr); };
  absl::Status status;
  for (int sent = 0; status.ok() && sent < 1'000'000; ++sent) status = send();
  CHECK(absl::IsCancelled(status));
  CHECK(absl::IsCancelled(send()));
  payload.waited = absl::Milliseconds(59'990);
  CHECK(absl::IsResourceExhausted(send()));
  payload.waited = absl::Milliseconds(70'000);
  CHECK(absl::IsResourceExhausted(send()));
}

TEST_CASE("two that fill each other's mailboxes get an error, not a standstill") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 10;
  limits.send_wait_ms = 200;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add(limits);
  REQUIRE(a.AddActor(50, {}).ok());
  REQUIRE(b.AddActor(50, {}).ok());
  const auto fill = [](Runtime& from, Runtime& to) {
    const CallTarget target = {{to.self(), 50}, 0};
    absl::Status status;
    for (int i = 0; status.ok() && i < 1'000'000; ++i) {
      status = from.Send(50, FrameKind::kCall, {&target, 1}, OnePart("x"), nullptr);
    }
    MONARCH_CHECK(absl::IsResourceExhausted(status));
  };
  std::thread other([&] { fill(b, a); });
  fill(a, b);
  other.join();
}

TEST_CASE("answers pass although the asker's mailbox is full") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.mailbox_messages_max = 5;
  limits.send_wait_ms = 100;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add(limits);
  REQUIRE(a.AddActor(50, {}).ok());
  const CallTarget to_a = {{a.self(), 50}, 0};
  absl::Status status;
  while (status.ok()) status = b.Send(kRootActor, FrameKind::kCall, {&to_a, 1}, OnePart("x"), nullptr);
  TestActor echo(b, 51, [&](const Message& message) {
    MONARCH_CHECK(b.Reply(message, FrameKind::kReply, OnePart("y")).ok());
  });
  const auto call = a.OpenCall(50, 1);
  const CallTarget to_b = {echo.address(), 0};
  REQUIRE(a.Send(50, FrameKind::kCall, {&to_b, 1}, OnePart("x"), call.get()).ok());
  CHECK(Next(a, *call).ok());
}

TEST_CASE("a full segment makes its sender wait for blocks") {
  Cluster cluster(GENERATE(false, true));
  Limits limits;
  limits.segment_bytes_max = 1 << 20;
  Runtime& a = cluster.Add(limits);
  Runtime& b = cluster.Add();
  std::atomic<int> seen{0};
  TestActor actor(b, 50, [&](const Message&) { ++seen; });
  const CallTarget target = {actor.address(), 0};
  const OnePart payload(std::string(300'000, 'x'));
  for (int i = 0; i < 50; ++i)
    REQUIRE(a.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, nullptr).ok());
  CHECK(Eventually([&] { return seen == 50; }));
  CHECK(Eventually([&] { return a.stats().segment_bytes == 0; }));
}

}  // namespace
}  // namespace monarch
