#include "client/cpp/session.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/failure_detail.h"
#include "message/control_message.h"

namespace monarch {
namespace internal {
namespace {

// What a session's processes have to handle what was sent to them and to clean up, at a client's orderly end;
// and what that is waited for, with a margin.
constexpr absl::Duration kEndGrace = absl::Seconds(5);
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(7);

// A report without the last words of the dead is worth little, but it has to come.
constexpr absl::Duration kDetailTimeout = absl::Seconds(2);

// What a callback that takes long may leave waiting; the oldest are dropped, and the daemon's log has them.
constexpr size_t kHangsMax = 1024;

// Not by exit(): it would destroy statics under threads that use them, and a session among them would wait
// for this very thread.
bool EndProgram(const FailureEvent& event) {
  std::cerr << "Unhandled failure of what this program spawned:\n" << event.Report() << std::flush;
  // Who holds it may be blocked in a write.
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  _exit(1);
}

void LogHang(const HangReport& hang) {
  LogWarning("client", hang.recovered ? "an actor goes on" : "an actor hangs")
      .With("who", hang.event.Summary());
}

FailureEvent EventOf(const Message& message) {
  absl::StatusOr<FailureEvent> event = DecodeFailureEvent(message.view.meta);
  if (event.ok()) return *std::move(event);
  FailureEvent unreadable;
  unreadable.kind = FailureKind::kException;
  unreadable.actor = message.header.sender;
  unreadable.rank = message.header.rank;
  unreadable.reason = absl::StrCat("its report is not readable: ", event.status().message());
  return unreadable;
}

// Signals belong to the program's own threads.
template <typename F>
std::thread StartWithoutSignals(F main) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(main));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(ConnectOptions options) {
  ClientOptions client;
  client.address = options.address;
  client.monarchd_path = options.monarchd_path;
  client.name = options.name;
  MONARCH_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, Runtime::StartClient(client));
  return std::shared_ptr<Session>(new Session(std::move(runtime), std::move(options)));
}

Session::Session(std::shared_ptr<Runtime> runtime, ConnectOptions options)
    : runtime_(std::move(runtime)),
      control_(MakeControlChannel([runtime = runtime_] { return runtime->OpenControl(); },
                                  runtime_->control_token())),
      watch_(std::make_shared<Watch>()) {
  watch_->runtime = runtime_;
  watch_->on_failure = options.on_failure ? std::move(options.on_failure) : EndProgram;
  watch_->on_hang = options.on_hang ? std::move(options.on_hang) : LogHang;
  watch_->root = runtime_->root_mailbox();
  watch_->notifier = runtime_->MakeNotifier();
  runtime_->SetHangHandler([weak = std::weak_ptr<Watch>(watch_)](HangNotice notice) {
    const std::shared_ptr<Watch> watch = weak.lock();
    if (watch == nullptr) return;
    {
      MutexLock lock(watch->mu);
      if (watch->hangs.size() == kHangsMax) watch->hangs.pop_front();
      watch->hangs.push_back(std::move(notice));
    }
    watch->notifier->Poke();
  });
  watcher_ = StartWithoutSignals([watch = watch_] { WatchFailures(*watch); });
}

Session::~Session() { End(); }

void Session::End() {
  if (watch_->closing.exchange(true)) return;
  if (getpid() != pid_) {
    // A forked child has none of the threads to wait for, and the session is its parent's.
    watcher_.detach();
    static_cast<void>(control_.release());
    return;
  }
  runtime_->WakeNotifier(*watch_->notifier);
  if (watcher_.get_id() == std::this_thread::get_id()) {
    watcher_.detach();
  } else {
    watcher_.join();
  }
  // What does not end in time is ended by the daemon, which sees this process's own end.
  static_cast<void>(runtime_->Goodbye(kGoodbyeTimeout, kEndGrace));
}

void Session::TellHangs(Watch& watch) {
  std::deque<HangNotice> hangs;
  {
    MutexLock lock(watch.mu);
    hangs.swap(watch.hangs);
  }
  for (HangNotice& notice : hangs) {
    if (watch.closing) return;
    watch.on_hang({std::move(notice.event), std::move(notice.hang.method), notice.hang.age,
                   std::move(notice.hang.state), notice.hang.recovered});
  }
}

void Session::WatchFailures(Watch& watch) {
  watch.root->SetNotifier(watch.notifier, 1);
  while (!watch.closing) {
    static_cast<void>(watch.runtime->WaitNotifier(*watch.notifier, -1, absl::InfiniteDuration()));
    static_cast<void>(watch.notifier->Take());
    TellHangs(watch);
    while (!watch.closing) {
      const std::optional<Message> message = watch.root->TryPop();
      if (!message.has_value()) break;
      if (message->header.kind != FrameKind::kActorFailed) continue;
      const FailureEvent event = WithDetail(watch.runtime.get(), EventOf(*message), kDetailTimeout);
      if (!watch.on_failure(event)) EndProgram(event);
    }
  }
}

}  // namespace internal
}  // namespace monarch
