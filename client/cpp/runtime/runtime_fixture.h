#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/limits.h"
#include "client/cpp/runtime/fake_daemon.h"
#include "client/cpp/runtime/runtime.h"
#include "client/cpp/runtime/runtime_impl.h"

namespace monarch {

// Longer than anything here takes; a test that runs into it has failed.
inline constexpr absl::Duration kTestTimeout = absl::Seconds(20);

// A few runtimes of one process on a fake daemon.
// Threading: confined to its test.
class Cluster {
 public:
  explicit Cluster(bool relay)
      : Cluster(FakeDaemon::Options{.relay = relay, .refuse = "", .silent = false, .introduce = true}) {}
  explicit Cluster(const FakeDaemon::Options& options) : daemon(options) {}
  Runtime& Add(const Limits& limits = Limits());

  FakeDaemon daemon;
  std::vector<std::unique_ptr<Runtime>> runtimes;
};

// An actor with a thread that hands each message to a function; ends itself when destroyed, or told to stop.
// Threading: confined to its test.
class TestActor {
 public:
  using Handler = std::function<void(const Message& message)>;
  TestActor(Runtime& runtime, uint64_t id, Handler handler, const Runtime::ActorInfo& info = {});
  ~TestActor();
  ActorAddress address() const { return {runtime_.self(), id_}; }
  void Quit();  // without EndActor

 private:
  Runtime& runtime_;
  const uint64_t id_;
  std::shared_ptr<Inbox> mailbox_;
  std::shared_ptr<Inbox> quit_port_;
  std::atomic<bool> quit_{false};
  std::thread thread_;
};

// One part with these bytes. Threading: immutable.
class OnePart {
 public:
  explicit OnePart(std::string text, PayloadKind kind = PayloadKind::kRaw)
      : text_(std::move(text)),
        part_(reinterpret_cast<const uint8_t*>(text_.data()), text_.size()),
        outgoing_{kind, {}, {&part_, 1}} {}
  operator const Outgoing&() const { return outgoing_; }  // NOLINT: a test's shorthand

 private:
  const std::string text_;
  const absl::Span<const uint8_t> part_;
  const Outgoing outgoing_;
};

std::string TextOf(const Message& message);    // of the first part; "" if there is none
FailureEvent EventOf(const Message& message);  // decoded meta
// Sends to one actor and waits for the answer.
absl::StatusOr<Message> CallOne(Runtime& runtime, const ActorAddress& to, const std::string& text);
// The next message, within kTestTimeout.
absl::StatusOr<Message> Next(Runtime& runtime, Inbox& inbox);
// Looks again and again until it is so; false after kTestTimeout.
bool Eventually(const std::function<bool()>& so);

}  // namespace monarch
