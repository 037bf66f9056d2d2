#include "client/cpp/runtime/runtime_impl.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "client/cpp/runtime/crash_handler.h"
#include "client/cpp/runtime/end_signals.h"
#include "client/cpp/runtime/served_actor.h"

namespace monarch {
namespace {

constexpr absl::Duration kControlTimeout = absl::Seconds(5);
// A request waits so long for a daemon that restarts.
constexpr absl::Duration kReturnTimeout = absl::Seconds(60);
constexpr int kPrivateDaemonEndMs = 2'000;
constexpr size_t kDeadProcsMax = 65536;
constexpr size_t kPairsMax = 1 << 20;

// The private daemon goes when its client has said goodbye; its pid is ours to reap.
void ReapPrivateDaemon(int64_t pid) {
  if (pid <= 0) return;
  const ScopedFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (pidfd.valid()) {
    pollfd entry = {pidfd.get(), POLLIN, 0};
    static_cast<void>(poll(&entry, 1, kPrivateDaemonEndMs));
  }
  static_cast<void>(waitpid(static_cast<pid_t>(pid), nullptr, WNOHANG));
}

// Processes of several hosts spawn actors into one process, and proc numbers are unique on their host only:
// each counts from a random place. Not below 2^61, and so none of the fixed ids; below 2^63 for ever, as
// values are signed.
uint64_t FirstActorId() { return uint64_t{1} << 61 | Id128::Random().low >> 3; }

absl::Status Wants(const ControlMessage& answer) {
  if (answer.type == ControlType::kOk) return absl::OkStatus();
  const auto code = answer.body["code"].AsInt();
  const auto message = answer.body["message"].AsString();
  return absl::Status(code.ok() && *code > 0 && *code <= 16 ? static_cast<absl::StatusCode>(*code)
                                                            : absl::StatusCode::kUnknown,
                      message.ok() ? *message : "monarchd refused");
}

}  // namespace

RuntimeImpl::RuntimeImpl(Connection connection, std::unique_ptr<ServiceThread> service, const Limits& limits)
    : limits_(limits),
      self_(connection.self),
      session_(connection.session),
      control_token_(connection.control_token),
      host_name_(std::move(connection.host_name)),
      boot_(std::move(connection.boot)),
      is_client_(connection.is_client),
      doorbell_(connection.pages.doorbell),
      segment_(connection.pages.segment),
      launcher_(std::move(connection.launcher)),
      private_daemon_(connection.private_daemon),
      next_actor_(FirstActorId()),
      service_(std::move(service)),
      loop_(service_->loop()),
      words_(std::make_shared<WaitWords>(doorbell_)),
      // Blocks and mailboxes may outlive this object; then the loop is gone or has stopped, and nothing is
      // run.
      releases_(std::make_shared<ReleaseQueue>([this, weak = std::weak_ptr<EventLoop>(loop_)](bool at_once) {
        if (auto loop = weak.lock()) loop->Post([this, at_once] { ReleaseSoon(at_once); });
      })),
      daemon_(std::move(connection.daemon), static_cast<size_t>(limits.control_queue_bytes_max),
              [this] { WantWrite(); }),
      return_(
          loop_.get(),
          {connection.return_dir, session_, self_, control_token_,
           absl::Milliseconds(limits.daemon_absence_ms)},
          [this](PacketSocket socket) { OnDaemonReturned(std::move(socket)); },
          [this](const std::string& why) { EndDaemon(absl::StrCat("monarchd ended: ", why)); }),
      peers_({&daemon_, doorbell_.get(), words_.get(), &frames_sent_, &blocked_peers_, &actors_, session_,
              self_}),
      actors_(words_,
              {static_cast<uint64_t>(limits.mailbox_bytes_max),
               static_cast<uint64_t>(limits.mailbox_messages_max),
               static_cast<uint64_t>(limits.actors_per_proc_max)},
              [this, weak = std::weak_ptr<EventLoop>(loop_), words = std::weak_ptr<WaitWords>(words_)](
                  uint64_t actor, std::vector<ProcAddress> procs, std::vector<uint32_t> waiting) {
                if (auto waker = words.lock()) {
                  for (const uint32_t word : waiting) waker->Wake(word);
                }
                if (procs.empty()) return;
                if (auto loop = weak.lock()) {
                  loop->Post([this, actor, procs = std::move(procs)] { TellResume(actor, procs); });
                }
              }),
      calls_(self_, words_,
             {static_cast<uint64_t>(limits.mailbox_bytes_max),
              static_cast<uint64_t>(limits.mailbox_messages_max)},
             [this, weak = std::weak_ptr<EventLoop>(loop_), words = std::weak_ptr<WaitWords>(words_)](
                 uint64_t owner, std::vector<ProcAddress> procs, std::vector<uint32_t> waiting) {
               if (auto waker = words.lock()) {
                 for (const uint32_t word : waiting) waker->Wake(word);
               }
               if (procs.empty()) return;
               if (auto loop = weak.lock()) {
                 loop->Post([this, owner, procs = std::move(procs)] { TellResume(owner, procs); });
               }
             }),
      dead_(kDeadProcsMax),
      deadlocks_({self_, static_cast<size_t>(limits.call_depth_max), &actors_, &calls_, loop_,
                  [this](const ProcAddress& to, const std::string& probe) {
                    static_cast<void>(
                        SendQuietly(HeaderTo(FrameKind::kProbe, kAgentActor, {to, kAgentActor}), probe));
                  },
                  [this](const FrameHeader& call, const std::string& exception) {
                    static_cast<void>(SendQuietly(AnswerTo(call, FrameKind::kException), exception));
                  },
                  [this](uint64_t call, uint64_t caller, const CallTarget& callee) {
                    SendCancels(call, caller, {&callee, 1});
                  }}),
      sequencer_({static_cast<size_t>(limits.reorder_frames_max), kPairsMax}) {}

std::unique_ptr<Runtime> RuntimeImpl::Create(Connection connection, std::unique_ptr<ServiceThread> service,
                                             const Limits& limits) {
  std::unique_ptr<RuntimeImpl> runtime(new RuntimeImpl(std::move(connection), std::move(service), limits));
  if (runtime->is_client_) {
    ActorInfo root;
    root.name = "root";
    static_cast<void>(runtime->actors_.Add(kRootActor, std::move(root)));
    TellOfEndSignals(runtime->daemon_.fd());
  }
  runtime->StartService();
  return runtime;
}

RuntimeImpl::~RuntimeImpl() {
  if (fork_.in_child()) {
    service_->Abandon();
    return;
  }
  // The end of the socket says nothing (a forked child may hold it), and this process may go on for long.
  if (is_client_ && !goodbye_said_) {
    static_cast<void>(daemon_.Send({ControlType::kGoodbye, daemon_.NextRequest(), Value::Map{}}));
  }
  TellNoMoreOfEndSignals(daemon_.fd());
  loop_->Stop();
  // The loop's thread leaves; what it still holds of this object is gone before the members are.
  service_.reset();
  static_cast<void>(daemon_.Flush());
  daemon_.Close();
  ReapPrivateDaemon(private_daemon_.pid);
}

FrameHeader RuntimeImpl::HeaderTo(FrameKind kind, uint64_t sender, const ActorAddress& receiver) const {
  FrameHeader header;
  header.kind = kind;
  header.session = session_;
  header.sender = {self_, sender};
  header.receiver = receiver;
  return header;
}

FrameHeader RuntimeImpl::AnswerTo(const FrameHeader& request, FrameKind kind) const {
  FrameHeader header = HeaderTo(kind, request.receiver.actor, request.sender);
  header.flags = kFlagReply;
  header.port_id = request.port_id;
  header.call_id = request.call_id;
  header.reply_word = request.reply_word;
  header.rank = request.rank;
  return header;
}

absl::Status RuntimeImpl::SendReady() {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  return daemon_.Send({ControlType::kReady, 0, Value::Map{}});
}

absl::Status RuntimeImpl::AskOnce(ControlMessage message, absl::Span<const int> fds, absl::Duration timeout) {
  const uint32_t request = message.request = daemon_.NextRequest();
  const uint32_t word = words_->ThreadWord();
  absl::Status status = daemon_.Send(message, fds);
  if (status.ok()) {
    {
      MutexLock lock(mu_);
      answer_words_.push_back(word);
    }
    const SystemClock clock;
    const absl::Duration deadline = clock.Now() + timeout;
    do {  // A signal's handler may run; the request is out, so the answer is awaited.
      status = words_->SleepUntil([&] { return daemon_.HasAnswer(request); }, [&] { Drain(word); }, false,
                                  deadline - clock.Now());
    } while (absl::IsCancelled(status));
    MutexLock lock(mu_);
    answer_words_.erase(std::find(answer_words_.begin(), answer_words_.end(), word));
  }
  const auto answer = daemon_.TakeAnswer(request);
  if (!answer.ok()) return status.ok() ? answer.status() : status;
  return Wants(*answer);
}

absl::Status RuntimeImpl::Ask(ControlMessage request, absl::Span<const int> fds, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  absl::Status status;
  do {
    status = AskOnce(request, fds, deadline - clock.Now());
  } while (absl::IsUnavailable(status) && return_.possible() && !daemon_ended_ && clock.Now() < deadline);
  return status;
}

absl::StatusOr<ScopedFd> RuntimeImpl::OpenControl() {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return ErrnoStatus("socketpair", errno);
  ScopedFd ours(fds[0]);
  const ScopedFd theirs(fds[1]);
  const int passed = theirs.get();
  const absl::Duration timeout = return_.possible() ? kReturnTimeout : kControlTimeout;
  MONARCH_RETURN_IF_ERROR(Ask({ControlType::kOpenControl, 0, Value::Map{}}, {&passed, 1}, timeout));
  return ours;
}

absl::Status RuntimeImpl::Goodbye(absl::Duration timeout, absl::Duration grace) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  goodbye_said_ = true;
  const absl::Status status = Ask(
      {ControlType::kGoodbye, 0, Value::Map{{"grace_ms", absl::ToInt64Milliseconds(grace)}}}, {}, timeout);
  // A daemon that is gone has nothing of the session left.
  return daemon_ended_ ? absl::OkStatus() : status;
}

absl::Status RuntimeImpl::Wait(Inbox& inbox, absl::Duration timeout) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  const uint32_t word = words_->ThreadWord();
  uint64_t port_owner = 0;
  uint32_t rung = 0;
  bool limited = timeout != absl::InfiniteDuration();
  {
    MutexLock lock(inbox.mu_);
    limited = limited || inbox.deadline_ns_ != 0;
    inbox.word_ = word;
    rung = inbox.rung_word_;
    port_owner = inbox.owner_;
  }
  if (port_owner != 0) rung = actors_.WordOf(port_owner);
  const auto sleep = [&](absl::Duration limit) {
    return words_->SleepUntil([&] { return inbox.ready(); }, [&] { Drain(word); }, rung != word, limit);
  };
  const bool is_call = inbox.id() != 0 && port_owner == 0;
  // Whoever waits with a limit goes on by itself.
  if (served_actor == 0 || !is_call || limited) return sleep(timeout);
  return deadlocks_.Wait(inbox, served_actor, sleep);
}

absl::Status RuntimeImpl::WaitNotifier(Notifier& notifier, int epoll_fd, absl::Duration timeout) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  const uint32_t word = words_->ThreadWord();
  notifier.SetWord(word);
  const auto ready = [&] { return notifier.has_news(); };
  const auto drain = [&] { Drain(word); };
  if (epoll_fd < 0) return words_->SleepUntil(ready, drain, false, timeout);
  MONARCH_ASSIGN_OR_RETURN(const int event_fd, notifier.EventFd());
  return words_->PollUntil(ready, drain, epoll_fd, event_fd, timeout);
}

void RuntimeImpl::WakeNotifier(Notifier& notifier) {
  if (!fork_.in_child()) notifier.Poke();
}

std::shared_ptr<Notifier> RuntimeImpl::MakeNotifier() { return std::make_shared<Notifier>(words_); }

void RuntimeImpl::AddBellWaiter() {
  if (fork_.in_child()) return;
  doorbell_->AddBellWaiter();
  // What came before the senders could see it.
  loop_->Post([this] { OnBell(); });
}

void RuntimeImpl::RemoveBellWaiter() {
  if (!fork_.in_child()) doorbell_->RemoveBellWaiter();
}

void RuntimeImpl::SetHangHandler(std::function<void(HangNotice)> take) {
  MutexLock lock(mu_);
  take_hang_ = std::move(take);
}

absl::StatusOr<RuntimeTask> RuntimeImpl::NextTask(absl::Duration timeout) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  const uint32_t word = words_->ThreadWord();
  const auto remember = [&] {
    MutexLock lock(mu_);
    if (std::find(task_words_.begin(), task_words_.end(), word) == task_words_.end())
      task_words_.push_back(word);
  };
  std::optional<RuntimeTask> task;
  remember();
  const absl::Status status = words_->SleepUntil(
      [&] {
        MutexLock lock(mu_);
        if (tasks_.empty()) return false;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        return true;
      },
      [&] { Drain(word); }, false, timeout);
  {
    MutexLock lock(mu_);
    std::erase(task_words_, word);
  }
  MONARCH_RETURN_IF_ERROR(status);
  return *std::move(task);
}

Runtime::Stats RuntimeImpl::stats() const {
  Stats stats;
  stats.frames_sent = frames_sent_;
  stats.frames_received = frames_received_;
  stats.ring_links = ring_links_;
  stats.relay_links = relay_links_;
  stats.futex_wakes = doorbell_counts().futex_wakes;
  stats.futex_waits = doorbell_counts().futex_waits;
  stats.bell_writes = doorbell_counts().bell_writes;
  stats.segment_bytes = segment_->stats().bytes;
  for (const std::shared_ptr<Peer>& peer : peers_.All()) stats.pairs_to += peer->pairs();
  MutexLock lock(drain_mu_);
  stats.pairs_from = sequencer_.pairs();
  return stats;
}

// --- actors ---

absl::StatusOr<std::shared_ptr<Inbox>> RuntimeImpl::AddActor(uint64_t actor, const ActorInfo& info) {
  MONARCH_RETURN_IF_ERROR(fork_.Check());
  auto mailbox = actors_.Add(actor, info);
  if (mailbox.ok()) TellActorUp(actor, info);
  return mailbox;
}

void RuntimeImpl::ShowRestarts(uint64_t actor, const MeshRestarts& restarts) {
  if (fork_.in_child()) return;
  if (const auto shown = actors_.SetRestarts(actor, restarts)) TellActorUp(actor, *shown);
}

uint64_t RuntimeImpl::NextActorId() { return next_actor_.fetch_add(1); }

void RuntimeImpl::BindPool() {
  if (!fork_.in_child()) words_->BindPool();
}

void RuntimeImpl::BindActor(uint64_t actor) {
  if (fork_.in_child()) return;
  served_actor = actor;
  UseCrashStack();
  const uint32_t word = words_->ThreadWord();
  const uint32_t before = actors_.Bind(actor, word);
  if (before != kServiceWord && before != word) doorbell_->RegisterActor(before, 0);
  if (word != kServiceWord) doorbell_->RegisterActor(word, actor);
  // A sender that did not see the word yet rang the bell, or will.
}

void RuntimeImpl::SetActivity(std::string_view method, int64_t began_ns) {
  if (served_actor == 0 || fork_.in_child()) return;
  const uint32_t word = words_->ThreadWord();
  if (word != kServiceWord && doorbell_->SetActivity(word, served_actor, method, began_ns))
    static_cast<void>(daemon_.Send({ControlType::kHandlerEnded, 0, Value::Map{}}));
}

std::shared_ptr<Inbox> RuntimeImpl::OpenCall(uint64_t caller, size_t answers, absl::Duration timeout) {
  if (fork_.in_child()) return CallTable::Closed();
  const uint32_t word = words_->ThreadWord();
  if (timeout == absl::InfiniteDuration()) return calls_.OpenCall(caller, answers, word, 0);
  const int64_t deadline_ns = absl::ToInt64Nanoseconds(SystemClock().Now() + timeout);
  auto call = calls_.OpenCall(caller, answers, word, deadline_ns);
  if (deadline_ns < late_calls_at_ns_) loop_->Post([this] { EndLateCalls(); });
  return call;
}

std::shared_ptr<Inbox> RuntimeImpl::OpenPort(uint64_t owner) {
  if (fork_.in_child()) return CallTable::Closed();
  return calls_.OpenPort(owner, actors_.WordOf(owner));
}

void RuntimeImpl::FailCall(Inbox& call, uint32_t rank, const FailureEvent& event) {
  if (!fork_.in_child()) calls_.Fail(call.id(), rank, event, false);
}

void RuntimeImpl::CloseInbox(Inbox& inbox) {
  if (fork_.in_child()) return;
  calls_.Close(inbox);
}

void RuntimeImpl::CancelCall(Inbox& call) {
  if (fork_.in_child()) return;
  const CallTable::GivenUp given_up = calls_.Close(call);
  SendCancels(call.id(), given_up.owner, given_up.unanswered);
}

}  // namespace monarch
