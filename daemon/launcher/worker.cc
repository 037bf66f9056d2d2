#include "daemon/launcher/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/launcher/process_stat.h"
#include "message/large_body.h"

namespace monarch {
namespace {

constexpr int kLauncherSocketFd = 4;
// From a life-line without a cause to the notice without one: a process that the kernel has marked, but whose
// exit is not visible yet, shows it well within.
constexpr absl::Duration kCauseWaitMax = absl::Milliseconds(50);

absl::Status MakePipe(ScopedFd* read_end, ScopedFd* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("make a pipe for a worker's output", errno);
  read_end->reset(ends[0]);
  write_end->reset(ends[1]);
  return absl::OkStatus();
}

}  // namespace

Worker::Worker(const Context& context, uint64_t key, ProcAddress proc, OutputSource source,
               std::string cgroup)
    : context_(context), key_(key), proc_(proc), source_(std::move(source)), cgroup_(std::move(cgroup)) {}

Worker::~Worker() {
  if (waiting_) context_.loop->Cancel(wait_timer_);
  if (child_.outcome.valid()) context_.loop->Unwatch(child_.outcome.get());
  if (child_.pidfd.valid()) context_.loop->Unwatch(child_.pidfd.get());
  context_.lifelines->Unwatch(key_);
  context_.obituaries->Unwatch(key_);
}

absl::Status Worker::OpenChannel(ScopedFd* worker_end) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  if (!pair.ok()) return pair.status();
  *worker_end = pair->second.ReleaseFd();
  channel_ = std::make_unique<ControlChannel>(
      context_.loop, std::move(pair->first),
      [this](ControlMessage message, std::vector<ScopedFd> fds) { OnMessage(message, std::move(fds)); },
      [this](const absl::Status& reason) {
        if (absl::IsUnavailable(reason)) return;
        LogWarning("launcher", "worker socket closed")
            .With("proc", proc_.ToString())
            .With("error", reason.ToString());
      });
  return absl::OkStatus();
}

std::unique_ptr<OutputDrain> Worker::MakeDrain(OutputStream stream, ScopedFd pipe) {
  return std::make_unique<OutputDrain>(context_.loop, std::move(pipe), [this, stream](std::string lines) {
    if (stream == OutputStream::kStderr) last_words_.Add(lines);
    context_.output->Add(stream, source_, std::move(lines));
  });
}

absl::Status Worker::OpenOutput(ScopedFd* out, ScopedFd* err) {
  ScopedFd out_reader;
  ScopedFd err_reader;
  MONARCH_RETURN_IF_ERROR(MakePipe(&out_reader, out));
  MONARCH_RETURN_IF_ERROR(MakePipe(&err_reader, err));
  out_ = MakeDrain(OutputStream::kStdout, std::move(out_reader));
  err_ = MakeDrain(OutputStream::kStderr, std::move(err_reader));
  return absl::OkStatus();
}

absl::Status Worker::Start(ChildSpec spec, const WorkerBoot& boot, StartFailure* failure) {
  *failure = {"prepare", EMFILE};
  const ScopedFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) return ErrnoStatus("open /dev/null", errno);
  ScopedFd out;
  ScopedFd err;
  ScopedFd socket;
  MONARCH_RETURN_IF_ERROR(OpenOutput(&out, &err));
  MONARCH_RETURN_IF_ERROR(OpenChannel(&socket));
  spec.fds.push_back({null.get(), STDIN_FILENO});
  spec.fds.push_back({out.get(), STDOUT_FILENO});
  spec.fds.push_back({err.get(), STDERR_FILENO});
  spec.fds.push_back({socket.get(), kLauncherSocketFd});
  spec.die_with_parent = true;
  ControlMessage message{ControlType::kBoot, 0, ToBody(boot)};
  MONARCH_ASSIGN_OR_RETURN(ScopedFd body, MoveLargeBodyOut(&message));
  std::vector<ScopedFd> fds;
  if (body.valid()) fds.push_back(std::move(body));
  channel_->Send(message, std::move(fds));
  MONARCH_ASSIGN_OR_RETURN(child_, StartChild(spec, failure));
  return WatchChild();
}

absl::Status Worker::WatchChild() {
  const absl::Status outcome =
      context_.loop->WatchFd(child_.outcome.get(), EPOLLIN, [this](uint32_t) { OnOutcome(); });
  const absl::Status pidfd =
      context_.loop->WatchFd(child_.pidfd.get(), EPOLLIN, [this](uint32_t) { OnPidfd(); });
  // epoll refuses for want of memory only, and a child nobody watches must not be.
  MONARCH_CHECK(outcome.ok() && pidfd.ok());
  return absl::OkStatus();
}

void Worker::OnMessage(const ControlMessage& message, std::vector<ScopedFd> fds) {
  absl::Status status = absl::InvalidArgumentError("not a life-line with one fd");
  if (message.type == ControlType::kLifeline && fds.size() == 1 && !reaped_) {
    context_.obituaries->Watch(key_, proc_, child_.pid);
    status = context_.lifelines->Watch(key_, std::move(fds[0]));
    listens_ = true;
  }
  if (status.ok()) return channel_->Send({ControlType::kOk, message.request, Value(Value::Map{})});
  LogWarning("launcher", "worker's message refused")
      .With("proc", proc_.ToString())
      .With("error", status.ToString());
  channel_->Send(
      {ControlType::kRefused, message.request,
       Value::Map{{"code", static_cast<int>(status.code())}, {"message", std::string(status.message())}}});
}

void Worker::OnOutcome() {
  const std::optional<StartFailure> failure = ReadStartOutcome(child_.outcome.get());
  context_.loop->Unwatch(child_.outcome.get());
  child_.outcome.reset();
  if (!failure) return context_.events->OnLaunched(*this);
  start_failed_ = true;
  context_.events->OnLaunchFailed(*this, {proc_, failure->step, failure->error, strerror(failure->error)});
}

void Worker::LifelineFired() {
  if (reaped_) return;
  // Not reaped, so the number is still its.
  const std::optional<ProcessStat> stat = ReadProcessStat(child_.pid);
  if (!stat) return;
  const bool is_zombie = stat->state == 'Z' || stat->state == 'X';
  const ExitStatus cause = ExitStatus::FromWaitStatus(stat->exit_code);
  Tell(report_.LifelineFired(cause.known() ? cause : context_.obituaries->Announced(proc_), is_zombie));
}

void Worker::OnPidfd() {
  if (child_.outcome.valid()) OnOutcome();
  context_.obituaries->Unwatch(key_);
  siginfo_t info{};
  rusage usage{};
  // The raw call: the library's has no rusage.
  const long waited = syscall(SYS_waitid, P_PID, child_.pid, &info, WEXITED | WNOHANG, &usage);
  if (waited != 0 || info.si_pid == 0) {
    // pidfd says dead, so only another reaper could be the reason.
    MONARCH_CHECK(waited != 0 && errno == EINTR);
    return;
  }
  context_.loop->Unwatch(child_.pidfd.get());
  child_.pidfd.reset();
  reaped_ = true;
  maxrss_kib_ = usage.ru_maxrss;
  if (waiting_) context_.loop->Cancel(wait_timer_);
  waiting_ = false;
  context_.lifelines->Unwatch(key_);
  const ExitStatus status = ExitStatus::FromSiginfo(info.si_code, info.si_status);
  // First: if the watcher came too late, they still wait.
  if (!start_failed_) context_.obituaries->Died(proc_, status);
  DrainOutput();
  context_.output->AddEnd(source_);
  if (!start_failed_) Tell(report_.Reaped(status));
  context_.events->OnReaped(*this, !start_failed_);
}

void Worker::Tell(const DeathReport::Step& step) {
  if (step.dying) context_.events->OnDying(*this, {proc_, *step.dying});
  if (step.wait) {
    waiting_ = true;
    wait_timer_ = context_.loop->RunAfter(kCauseWaitMax, [this] {
      waiting_ = false;
      Tell(report_.WaitIsOver());
    });
  }
  if (!step.exited) return;
  WorkerExit exit;
  exit.proc = proc_;
  exit.status = *step.exited;
  exit.stderr_tail = last_words_.Stderr();
  exit.maxrss_kib = maxrss_kib_;
  if (exit.status.signal != 0) exit.backtrace = last_words_.Backtrace();
  if (exit.status.signal == SIGKILL) exit.memory_kill = context_.memory_kills->Judge(cgroup_);
  context_.events->OnExited(*this, exit);
}

void Worker::Signal(int signal) {
  if (reaped_ || !child_.pidfd.valid()) return;
  if (syscall(SYS_pidfd_send_signal, child_.pidfd.get(), signal, nullptr, 0) != 0 && errno != ESRCH) {
    LogWarning("launcher", "cannot signal a worker").With("proc", proc_.ToString()).With("errno", errno);
  }
}

bool Worker::AskToLeave(const std::string& reason, absl::Duration grace) {
  if (reaped_ || !listens_) return false;
  channel_->Send(
      {ControlType::kStop, 0,
       Value::Map{
           {"reason", reason}, {"grace_ms", absl::ToInt64Milliseconds(grace)}, {"session_ends", true}}});
  return true;
}

void Worker::DrainOutput() {
  if (out_ != nullptr) out_->DrainNow();
  if (err_ != nullptr) err_->DrainNow();
}

bool Worker::finished() const {
  return reaped_ && (out_ == nullptr || out_->ended()) && (err_ == nullptr || err_->ended());
}

}  // namespace monarch
