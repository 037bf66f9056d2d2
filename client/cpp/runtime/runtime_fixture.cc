#include "client/cpp/runtime/runtime_fixture.h"

#include <poll.h>

#include "base/check.h"
#include "base/clock.h"
#include "client/cpp/runtime/start_on.h"
#include "message/control_message.h"

namespace monarch {

Runtime& Cluster::Add(const Limits& limits) {
  Hello hello;
  hello.name = "test";
  auto runtime = StartClientOn(daemon.NewProcess(), {}, hello, absl::Seconds(5), limits);
  MONARCH_CHECK(runtime.ok());
  runtimes.push_back(*std::move(runtime));
  return *runtimes.back();
}

TestActor::TestActor(Runtime& runtime, uint64_t id, Handler handler, const Runtime::ActorInfo& info)
    : runtime_(runtime), id_(id) {
  auto mailbox = runtime.AddActor(id, info);
  MONARCH_CHECK(mailbox.ok());
  mailbox_ = *mailbox;
  thread_ = std::thread([this, handler = std::move(handler)] {
    runtime_.BindActor(id_);
    while (!quit_) {
      static_cast<void>(runtime_.Wait(*mailbox_, absl::InfiniteDuration()));
      if (quit_ || mailbox_->finished()) return;
      while (auto message = mailbox_->TryPop()) {
        if (quit_) return;
        handler(*message);
      }
    }
  });
}

void TestActor::Quit() {
  if (quit_.exchange(true)) return;
  // Any message wakes it.
  const CallTarget self = {address(), 0};
  MONARCH_CHECK(runtime_.Send(kRootActor, FrameKind::kStopActor, {&self, 1}, {}, nullptr).ok());
  thread_.join();
}

TestActor::~TestActor() {
  Quit();
  FailureEvent event;
  event.kind = FailureKind::kStopped;
  runtime_.EndActor(id_, event);
}

std::string TextOf(const Message& message) {
  if (message.view.parts.empty()) return "";
  const absl::Span<uint8_t> part = message.view.parts.front();
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

FailureEvent EventOf(const Message& message) {
  auto event = DecodeFailureEvent(message.view.meta);
  return event.ok() ? *std::move(event) : FailureEvent();
}

absl::StatusOr<Message> Next(Runtime& runtime, Inbox& inbox) {
  const absl::Status status = runtime.Wait(inbox, kTestTimeout);
  if (!status.ok()) return status;
  auto message = inbox.TryPop();
  if (!message.has_value()) return absl::OutOfRangeError("finished");
  return *std::move(message);
}

absl::StatusOr<Message> CallOne(Runtime& runtime, const ActorAddress& to, const std::string& text) {
  const auto call = runtime.OpenCall(kRootActor, 1);
  const CallTarget target = {to, 0};
  const OnePart payload(text);
  if (absl::Status sent = runtime.Send(kRootActor, FrameKind::kCall, {&target, 1}, payload, call.get());
      !sent.ok()) {
    runtime.CloseInbox(*call);
    return sent;
  }
  return Next(runtime, *call);
}

bool Eventually(const std::function<bool()>& so) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + kTestTimeout;
  while (!so()) {
    if (clock.Now() > deadline) return false;
    static_cast<void>(poll(nullptr, 0, 1));
  }
  return true;
}

}  // namespace monarch
