#include "daemon/launcher/launcher.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "daemon/launcher/leftovers.h"
#include "message/large_body.h"

namespace monarch {
namespace {

constexpr int kDaemonSocketFd = 3;
// Adopted orphans stay zombies for at most this long; shorter looks through /proc more often while workers
// die.
constexpr absl::Duration kOrphanReapDelay = absl::Milliseconds(200);
constexpr int64_t kKillAfterMsMax = 24LL * 3600 * 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<Launcher>> Launcher::Create(EventLoop* loop, PacketSocket daemon,
                                                           LauncherOptions options) {
  std::unique_ptr<Launcher> launcher(new Launcher(loop, options));
  MONARCH_RETURN_IF_ERROR(launcher->Init(std::move(daemon)));
  return launcher;
}

Launcher::Launcher(EventLoop* loop, LauncherOptions options)
    : loop_(loop),
      options_(options),
      end_(loop, this, &cgroup_, options.stop),
      remains_(loop, this, &cgroup_, options.remains),
      kept_(options.kept_max) {}

Launcher::~Launcher() {
  if (signals_.valid()) loop_->Unwatch(signals_.get());
  if (client_.valid()) loop_->Unwatch(client_.get());
}

absl::Status Launcher::Init(PacketSocket daemon) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGCHLD);
  signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return ErrnoStatus("make a signalfd", errno);
  MONARCH_RETURN_IF_ERROR(loop_->WatchFd(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignalFd(); }));
  MONARCH_ASSIGN_OR_RETURN(obituaries_, Obituaries::Create());
  MONARCH_ASSIGN_OR_RETURN(lifelines_, LifelineWatcher::Create([this](uint64_t key) {
                             obituaries_->LifelineFired(key);
                             loop_->Post([this, key] { OnLifeline(key); });
                           }));
  TalkTo(std::move(daemon));
  return absl::OkStatus();
}

void Launcher::TalkTo(PacketSocket daemon) {
  daemon_ = std::make_unique<ControlChannel>(
      loop_, std::move(daemon),
      [this](ControlMessage message, std::vector<ScopedFd> fds) {
        OnDaemonMessage(std::move(message), std::move(fds));
      },
      [this](const absl::Status& reason) { OnDaemonClosed(reason); });
}

void Launcher::Answer(uint32_t request, const absl::Status& status) {
  if (!status.ok()) LogWarning("launcher", "request refused").With("error", status.ToString());
  if (request == 0) return;
  if (status.ok()) return daemon_->Send({ControlType::kOk, request, Value(Value::Map{})});
  daemon_->Send(
      {ControlType::kRefused, request,
       Value::Map{{"code", static_cast<int>(status.code())}, {"message", std::string(status.message())}}});
}

void Launcher::OnDaemonMessage(ControlMessage message, std::vector<ScopedFd> fds) {
  switch (message.type) {
    case ControlType::kSetup:
      return Setup(message, std::move(fds));
    case ControlType::kLaunch: {
      const absl::Status taken = MoveLargeBodyIn(&message, &fds);
      return taken.ok() ? Launch(message, std::move(fds)) : Answer(message.request, taken);
    }
    case ControlType::kSignal:
      return Signal(message);
    case ControlType::kEndSession:
      return EndSession(message);
    case ControlType::kDoorbell:
      return Answer(message.request, TakeDoorbell(message.body, std::move(fds)));
    case ControlType::kLink:
      return Answer(message.request, TakeLink(message.body));
    case ControlType::kStopping:
      return Answer(message.request, SetStopping(message.body));
    case ControlType::kKeep:
      return Answer(message.request, kept_.Keep(message.body, std::move(fds)));
    case ControlType::kForget:
      return Answer(message.request, kept_.Forget(message.body));
    default:
      return Answer(message.request, absl::InvalidArgumentError(absl::StrCat(
                                         "unexpected message type ", static_cast<int>(message.type))));
  }
}

void Launcher::OnDaemonClosed(const absl::Status& reason) {
  if (door_ != nullptr && !end_.begun()) {
    LogInfo("launcher", "daemon gone, the session waits for the next")
        .With("reason", reason.ToString())
        .With("absence_ms", absl::ToInt64Milliseconds(absence_max_));
    absence_timer_ = loop_->RunAfter(absence_max_, [this] {
      absence_timer_ = 0;
      LogInfo("launcher", "no daemon came, session ends");
      end_.Begin("no monarchd came back", options_.kill_after);
    });
    return;
  }
  LogInfo("launcher", "daemon gone, session ends").With("reason", reason.ToString());
  end_.Begin("monarchd has ended", options_.kill_after);
}

absl::Status Launcher::OpenDoor(const LauncherSetup& setup) {
  if (setup.resume_path.empty()) return absl::OkStatus();
  absence_max_ = absl::Milliseconds(setup.absence_ms);
  MONARCH_ASSIGN_OR_RETURN(
      door_, DaemonDoor::Open(loop_, setup.resume_path, setup.resume_token,
                              [this](PacketSocket daemon) { OnNextDaemon(std::move(daemon)); }));
  return absl::OkStatus();
}

void Launcher::OnNextDaemon(PacketSocket daemon) {
  LogInfo("launcher", "the next daemon has come");
  loop_->Cancel(absence_timer_);
  absence_timer_ = 0;
  TalkTo(std::move(daemon));
  const auto send = [this](const ControlMessage& message, const std::vector<ScopedFd>& fds) {
    std::vector<ScopedFd> copies;
    for (const ScopedFd& fd : fds) {
      absl::StatusOr<ScopedFd> copy = fd.Dup();
      if (!copy.ok()) {
        LogError("launcher", "cannot hand an entry on").With("error", copy.status().ToString());
        return;
      }
      copies.push_back(*std::move(copy));
    }
    daemon_->Send(message, std::move(copies));
  };
  kept_.TellAll(send);
  ScopedFd board(obituaries_->board());
  std::vector<ScopedFd> boards;
  boards.push_back(std::move(board));
  send({ControlType::kOk, 0, Value(Value::Map{})}, boards);
  boards[0].release();
}

void Launcher::Tell(const ProcAddress& proc, const ControlMessage& message) {
  if (door_ != nullptr) kept_.AddNews(proc, message);
  daemon_->Send(message);
}

void Launcher::Setup(const ControlMessage& message, std::vector<ScopedFd> fds) {
  const absl::Status done = DoSetup(message.body, std::move(fds));
  if (!done.ok() || message.request == 0) return Answer(message.request, done);
  ScopedFd held(obituaries_->board());
  absl::StatusOr<ScopedFd> board = held.Dup();
  held.release();
  if (!board.ok()) return Answer(message.request, board.status());
  std::vector<ScopedFd> answer;
  answer.push_back(*std::move(board));
  daemon_->Send({ControlType::kOk, message.request, Value(Value::Map{})}, std::move(answer));
}

absl::Status Launcher::DoSetup(const Value& body, std::vector<ScopedFd> fds) {
  if (session_) return absl::FailedPreconditionError("set up already");
  if (fds.size() != 3 && fds.size() != 4) {
    return absl::InvalidArgumentError("setup takes the client's pidfd, stdout, stderr and output stream");
  }
  MONARCH_ASSIGN_OR_RETURN(const LauncherSetup setup, ParseLauncherSetup(body));
  MONARCH_RETURN_IF_ERROR(loop_->WatchFd(fds[0].get(), EPOLLIN, [this](uint32_t) { OnClientDead(); }));
  client_ = std::move(fds[0]);
  session_ = setup.session;
  output_ =
      std::make_unique<SessionOutput>(setup.output_buffer_bytes_max, std::move(fds[1]), std::move(fds[2]),
                                      fds.size() == 4 ? std::move(fds[3]) : ScopedFd(),
                                      SessionOutput::Log{setup.log_path, setup.worker_log_bytes_max});
  MONARCH_RETURN_IF_ERROR(OpenDoor(setup));
  const std::string mark = SessionMark(setup.session.ToHex());
  end_.set_mark(mark);
  remains_.set_session_mark(mark);
  absl::StatusOr<SessionCgroup> cgroup = absl::CancelledError("not wanted");
  if (setup.use_cgroup) cgroup = SessionCgroup::Create(setup.session);
  cgroup_ = cgroup.ok() ? *std::move(cgroup) : SessionCgroup::Missing(std::string(cgroup.status().message()));
  // Else a worker that asks for a limit is refused, with the reason.
  const absl::Status divided = cgroup_.Divide();
  LogInfo("launcher", "session set up")
      .With("session", setup.session.ToHex())
      .With("client", setup.client_pid)
      .With("cgroup", cgroup_.exists() ? cgroup_.path() : std::string(cgroup.status().message()))
      .With("worker_limits", divided.ok() ? "can be set" : std::string(divided.message()));
  return absl::OkStatus();
}

void Launcher::Launch(const ControlMessage& message, std::vector<ScopedFd> fds) {
  const absl::StatusOr<LaunchRequest> request = ParseLaunchRequest(message.body);
  StartFailure failure{"request", EINVAL};
  absl::Status status = request.status();
  if (status.ok() && fds.size() != 1)
    status = absl::InvalidArgumentError("launch takes the worker's daemon socket");
  if (status.ok()) status = DoLaunch(*request, std::move(fds[0]), &failure);
  if (status.ok()) return;
  const absl::StatusOr<ProcAddress> proc = ProcAddressFromValue(message.body["proc"]);
  if (!proc.ok()) return Answer(message.request, status);
  // The step has a field of its own.
  const std::string text(absl::StripPrefix(status.message(), failure.step + ": "));
  Tell(*proc, {ControlType::kLaunchFailed, message.request,
               ToBody(LaunchFailure{*proc, failure.step, failure.error, text})});
}

absl::Status Launcher::DoLaunch(const LaunchRequest& request, ScopedFd daemon_socket, StartFailure* failure) {
  RemoveFinishedWorkers();
  if (!session_) return absl::FailedPreconditionError("not set up");
  if (end_.begun()) {
    *failure = {"session", ECANCELED};
    return absl::CancelledError("the session is ending");
  }
  if (FindAlive(request.proc) != nullptr) return absl::AlreadyExistsError(request.proc.ToString());
  if (UnreapedWorkers().size() >= options_.workers_max) {
    *failure = {"limit", EAGAIN};
    return absl::ResourceExhaustedError(
        absl::StrCat("workers_max=", options_.workers_max, " of a launcher reached"));
  }
  if (absl::Status limited = cgroup_.Limit(request.proc, request.cgroup_limits); !limited.ok()) {
    *failure = {"memory_max, pids_max", EOPNOTSUPP};
    cgroup_.RemoveLeaf(request.proc);
    return limited;
  }
  const uint64_t key = next_key_++;
  OutputSource source{request.label.empty() ? request.proc.ToString() : request.label, ""};
  if (!request.output_tag.empty()) source.marker = absl::StrCat(request.output_tag, " ", request.proc.proc);
  auto worker = std::make_unique<Worker>(
      Worker::Context{loop_, lifelines_.get(), obituaries_.get(), output_.get(), &memory_kills_, this}, key,
      request.proc, std::move(source), cgroup_.LeafDirectory(request.proc));
  const WorkerBoot boot{*session_, request.proc, request.token, request.boot};
  MONARCH_RETURN_IF_ERROR(worker->Start(SpecFor(request, daemon_socket.get()), boot, failure));
  workers_.emplace(key, std::move(worker));
  // Its cgroup may count no memory; then there is nothing to be seen.
  if (cgroup_.exists()) memory_watch_.Add(cgroup_.LeafDirectory(request.proc)).IgnoreError();
  return absl::OkStatus();
}

ChildSpec Launcher::SpecFor(const LaunchRequest& request, int daemon_socket) {
  ChildSpec spec;
  spec.argv = request.argv;
  for (const std::string& entry : request.env) {
    // A session may have been started from within another.
    if (!absl::StartsWith(entry, SessionMark("")) && !absl::StartsWith(entry, kProcMarkStart)) {
      spec.env.push_back(entry);
    }
  }
  spec.env.push_back(SessionMark(session_->ToHex()));
  spec.env.push_back(ProcMark(request.proc));
  spec.cwd = request.cwd;
  if (request.umask) spec.umask = static_cast<mode_t>(*request.umask);
  spec.limits = request.limits;
  const bool nofile_given =
      std::any_of(spec.limits.begin(), spec.limits.end(),
                  [](const ResourceLimit& limit) { return limit.resource == RLIMIT_NOFILE; });
  rlimit nofile{};
  if (!nofile_given && options_.nofile_soft != 0 && getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
    spec.limits.push_back({RLIMIT_NOFILE, options_.nofile_soft, nofile.rlim_max});
  }
  spec.cpus = request.cpus;
  spec.fds = {{daemon_socket, kDaemonSocketFd}};
  spec.cgroup_procs = cgroup_.ProcsFileFor(request.proc);
  spec.cgroup_needed = request.cgroup_limits.memory_bytes_max != 0 || request.cgroup_limits.pids_max != 0;
  return spec;
}

void Launcher::Signal(const ControlMessage& message) {
  const absl::StatusOr<ProcAddress> proc = ProcAddressFromValue(message.body["proc"]);
  const absl::StatusOr<int64_t> signal = message.body["signal"].AsInt();
  if (!proc.ok()) return Answer(message.request, proc.status());
  if (!signal.ok()) return Answer(message.request, signal.status());
  if (*signal < 1 || *signal >= NSIG)
    return Answer(message.request, absl::InvalidArgumentError("no such signal"));
  // One that has ended meanwhile is no error: its exit is on the way.
  if (Worker* worker = FindAlive(*proc)) worker->Signal(static_cast<int>(*signal));
  Answer(message.request, absl::OkStatus());
}

void Launcher::EndSession(const ControlMessage& message) {
  const absl::StatusOr<int64_t> ms = message.body["kill_after_ms"].AsInt();
  if (!ms.ok()) return Answer(message.request, ms.status());
  if (message.request != 0) end_requests_.push_back(message.request);
  end_.Begin(message.body["reason"].AsString().value_or("monarchd ends it"),
             absl::Milliseconds(std::clamp<int64_t>(*ms, 0, kKillAfterMsMax)));
}

absl::Status Launcher::TakeDoorbell(const Value& body, std::vector<ScopedFd> fds) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(body["proc"]));
  if (fds.size() != 1) return absl::InvalidArgumentError("doorbell: wanted one fd");
  // A worker that has ended meanwhile would never be forgotten again.
  if (!body["client"].AsBool().value_or(false) && FindAlive(proc) == nullptr) return absl::OkStatus();
  return obituaries_->Add(proc, std::move(fds[0]));
}

absl::Status Launcher::TakeLink(const Value& body) {
  MONARCH_ASSIGN_OR_RETURN(const RingNotice ring, ParseRingNotice(body));
  obituaries_->Link(ring.a, ring.bit_in_a, ring.b, ring.bit_in_b);
  return absl::OkStatus();
}

absl::Status Launcher::SetStopping(const Value& body) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(body["proc"]));
  obituaries_->SetStopping(proc);
  return absl::OkStatus();
}

void Launcher::OnClientDead() {
  loop_->Unwatch(client_.get());
  client_.reset();
  output_->CloseClient();
  LogInfo("launcher", "client gone, session ends").With("session", session_->ToHex());
  end_.Begin("its client has ended", options_.kill_after);
}

void Launcher::OnSignalFd() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGTERM) {
      LogInfo("launcher", "terminated, session ends").With("by", info.ssi_pid);
      end_.Begin("its launcher was told to end", options_.kill_after);
    } else if (!reap_armed_) {
      reap_armed_ = true;
      loop_->RunAfter(kOrphanReapDelay, [this] {
        reap_armed_ = false;
        ReapOrphans(UnreapedWorkers());
      });
    }
  }
}

void Launcher::OnLifeline(uint64_t key) {
  const auto found = workers_.find(key);
  if (found != workers_.end()) found->second->LifelineFired();
}

void Launcher::OnMemoryEvent(const std::string& cgroup) {
  for (const auto& [key, worker] : workers_) {
    if (!worker->reaped() && cgroup == cgroup_.LeafDirectory(worker->proc())) {
      memory_kills_.OnRise(cgroup, worker->pid());
    }
  }
}

void Launcher::OnLaunched(Worker& worker) {
  Tell(worker.proc(), {ControlType::kLaunched, 0,
                       Value::Map{{"proc", ToValue(worker.proc())}, {"pid", int64_t{worker.pid()}}}});
}

void Launcher::OnLaunchFailed(Worker&, const LaunchFailure& failure) {
  Tell(failure.proc, {ControlType::kLaunchFailed, 0, ToBody(failure)});
}

void Launcher::OnDying(Worker&, const WorkerDying& dying) {
  Tell(dying.proc, {ControlType::kDying, 0, ToBody(dying)});
}

void Launcher::OnExited(Worker&, const WorkerExit& exit) {
  Tell(exit.proc, {ControlType::kExited, 0, ToBody(exit)});
  // Posted: the end may drain and count this worker, which is in the middle of its own work.
  if (end_.begun()) loop_->Post([this] { end_.Advance(); });
}

void Launcher::OnReaped(Worker& worker, bool ran) {
  obituaries_->Forget(worker.proc());
  memory_watch_.Remove(cgroup_.LeafDirectory(worker.proc()));
  if (ran) return remains_.Add(worker.proc());
  cgroup_.RemoveLeaf(worker.proc());
}

std::vector<pid_t> Launcher::AskWorkers(const std::string& reason, absl::Duration grace) {
  obituaries_->SetAllStopping();
  std::vector<pid_t> asked;
  for (const auto& [key, worker] : workers_) {
    if (worker->AskToLeave(reason, grace)) asked.push_back(worker->pid());
  }
  return asked;
}

std::vector<pid_t> Launcher::UnreapedWorkers() const {
  std::vector<pid_t> pids;
  for (const auto& [key, worker] : workers_) {
    if (!worker->reaped()) pids.push_back(worker->pid());
  }
  return pids;
}

Worker* Launcher::FindAlive(const ProcAddress& proc) {
  for (const auto& [key, worker] : workers_) {
    if (worker->proc() == proc && !worker->reaped()) return worker.get();
  }
  return nullptr;
}

void Launcher::RemoveFinishedWorkers() {
  std::erase_if(workers_, [](const auto& entry) { return entry.second->finished(); });
}

void Launcher::OnSessionGone() {
  for (const auto& [key, worker] : workers_) worker->DrainOutput();
  if (output_ == nullptr) return SendGone();
  output_->WhenIdle([this] { loop_->Post([this] { SendGone(); }); });
  loop_->RunAfter(options_.flush_wait, [this] { SendGone(); });
}

void Launcher::SendGone() {
  if (gone_sent_) return;
  gone_sent_ = true;
  door_.reset();
  const auto killed = static_cast<int64_t>(end_.killed() + remains_.killed());
  LogInfo("launcher", "session gone").With("killed", killed);
  if (end_requests_.empty()) end_requests_.push_back(0);
  for (const uint32_t request : end_requests_) {
    daemon_->Send({ControlType::kSessionGone, request, Value::Map{{"killed", killed}}});
  }
  if (output_ == nullptr) return loop_->Stop();
  // Stop is safe twice.
  if (daemon_->idle()) output_->WhenIdle([this] { loop_->Stop(); });
  loop_->RunAfter(options_.flush_wait, [this] { loop_->Stop(); });
}

}  // namespace monarch
