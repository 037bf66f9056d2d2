#include "daemon/launcher_link.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "message/large_body.h"

namespace monarch {
namespace {

// Beyond the launcher's own ladder: what it needs to reap, and to leave.
constexpr absl::Duration kEndSlack = absl::Milliseconds(700);

Value ListOf(const std::vector<std::string>& items) {
  Value::List list;
  for (const std::string& item : items) list.push_back(Value::Bytes{item});
  return list;
}

absl::StatusOr<ProcExit> ExitFromBody(const Value& body) {
  ProcExit exit;
  MONARCH_ASSIGN_OR_RETURN(const int64_t code, body["code"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t signal, body["signal"].AsInt());
  exit.code = static_cast<int>(code);
  exit.signal = static_cast<int>(signal);
  exit.core = body["core"].AsBool().value_or(false);
  exit.stderr_tail = body["stderr"].AsString().value_or("");
  exit.backtrace = body["backtrace"].AsString().value_or("");
  const int64_t answer = body["memory_kill"].AsInt().value_or(0);
  if (answer == static_cast<int64_t>(MemoryVerdict::Answer::kNo) ||
      answer == static_cast<int64_t>(MemoryVerdict::Answer::kYes)) {
    exit.memory_kill.answer = static_cast<MemoryVerdict::Answer>(answer);
  }
  exit.memory_kill.why = body["memory_note"].AsString().value_or("");
  return exit;
}

}  // namespace

LauncherLink::LauncherLink(EventLoop* loop, StartedLauncher process, const SessionId& session, Events* events,
                           ScopedFd board)
    : loop_(loop),
      session_(session),
      events_(events),
      process_(std::move(process)),
      board_(std::move(board)) {
  // The launcher bounds what it reports by its procs; it must never be cut off for a burst of deaths.
  NativeConnection::Limits limits;
  limits.control_bytes_max = std::numeric_limits<size_t>::max() / 2;
  connection_ = NativeConnection::Start(loop, std::move(process_.socket), this, limits);
  const absl::Status watched = loop->WatchFd(process_.pidfd.get(), EPOLLIN, [this](uint32_t) { OnPidfd(); });
  if (!watched.ok()) Kill("its pidfd cannot be watched");
}

LauncherLink::~LauncherLink() {
  if (kill_timer_ != 0) loop_->Cancel(kill_timer_);
  connection_->Close();
  loop_->Unwatch(process_.pidfd.get());
}

void LauncherLink::Setup(int64_t client_pid, const std::string& log_path, const Limits& limits,
                         absl::Span<const int> fds, const LauncherResume* resume) {
  Value::Map body = {{"session", ToValue(session_)},
                     {"client_pid", Value(client_pid)},
                     {"log_path", Value(log_path)},
                     {"worker_log_bytes_max", Value(limits.session_log_bytes_max)},
                     {"output_buffer_bytes_max", Value(limits.output_buffer_bytes_max)}};
  if (resume != nullptr) {
    body.insert({{"resume_path", Value(Value::Bytes{resume->path})},
                 {"resume_token", ToValue(resume->token)},
                 {"absence_ms", Value(absl::ToInt64Milliseconds(resume->absence_max))}});
  }
  connection_->Answer(next_request_++, ControlType::kSetup, std::move(body), fds);
}

void LauncherLink::Keep(const std::string& key, Value::Map body, absl::Span<const int> fds) {
  body["key"] = Value(key);
  connection_->Answer(0, ControlType::kKeep, std::move(body), fds);
}

void LauncherLink::Forget(const std::string& key, const ProcAddress* proc) {
  Value::Map body = {{"key", Value(key)}};
  if (proc != nullptr) body["proc"] = ToValue(*proc);
  connection_->Answer(0, ControlType::kForget, std::move(body));
}

absl::Status LauncherLink::Launch(const ProcAddress& proc, const ProcessSpec& spec,
                                  const std::vector<std::string>& env, const StartToken& token,
                                  const std::string& label, int socket) {
  Value::List rlimits;
  for (const auto& [resource, soft, hard] : spec.rlimits) {
    rlimits.push_back(Value::List{Value(resource), Value(soft), Value(hard)});
  }
  Value::List cpus;
  for (const uint32_t cpu : spec.cpus) cpus.push_back(Value(cpu));
  ControlMessage message{ControlType::kLaunch, 0,
                         Value::Map{{"proc", ToValue(proc)},
                                    {"argv", ListOf(spec.argv)},
                                    {"env", ListOf(env)},
                                    {"cwd", Value(Value::Bytes{spec.cwd})},
                                    {"umask", Value(spec.umask)},
                                    {"rlimits", Value(std::move(rlimits))},
                                    {"cpus", Value(std::move(cpus))},
                                    {"token", ToValue(token)},
                                    {"boot", Value(Value::Bytes{spec.boot})},
                                    {"label", Value(label)},
                                    {"output_tag", Value(spec.output_tag)},
                                    {"memory_bytes_max", Value(spec.memory_bytes_max)},
                                    {"pids_max", Value(spec.pids_max)}}};
  MONARCH_ASSIGN_OR_RETURN(const ScopedFd body, MoveLargeBodyOut(&message));
  if (body.valid()) return connection_->TrySend(message, {socket, body.get()});
  return connection_->TrySend(message, {socket});
}

void LauncherLink::Signal(const ProcAddress& proc, int signal) {
  connection_->Answer(0, ControlType::kSignal, {{"proc", ToValue(proc)}, {"signal", Value(signal)}});
}

void LauncherLink::AddDoorbell(const ProcAddress& proc, bool is_client, int doorbell) {
  connection_->Send(
      {ControlType::kDoorbell, 0, Value::Map{{"proc", ToValue(proc)}, {"client", Value(is_client)}}},
      {doorbell});
}

void LauncherLink::Link(const ProcAddress& a, uint32_t bit_in_a, const ProcAddress& b, uint32_t bit_in_b) {
  connection_->Send(
      {ControlType::kLink, 0,
       Value::Map{
           {"a", ToValue(a)}, {"a_bit", Value(bit_in_a)}, {"b", ToValue(b)}, {"b_bit", Value(bit_in_b)}}});
}

void LauncherLink::SetStopping(const ProcAddress& proc) {
  connection_->Answer(0, ControlType::kStopping, {{"proc", ToValue(proc)}});
}

void LauncherLink::EndSession(const std::string& reason, absl::Duration kill_after) {
  if (ending_) return;
  ending_ = true;
  connection_->Answer(
      next_request_++, ControlType::kEndSession,
      {{"reason", Value(reason)}, {"kill_after_ms", Value(absl::ToInt64Milliseconds(kill_after))}});
  kill_timer_ = loop_->RunAfter(kill_after + kEndSlack, [this] {
    kill_timer_ = 0;
    Kill("it did not end its session in time");
  });
}

absl::Status LauncherLink::OnPacket(NativeConnection&, Packet packet) {
  MONARCH_ASSIGN_OR_RETURN(const ControlMessage message, DecodeControl(packet.bytes));
  // Setup's.
  if (message.type == ControlType::kOk && packet.fds.size() == 1 && !board_.valid())
    board_ = std::move(packet.fds[0]);
  return Handle(message);
}

absl::Status LauncherLink::Handle(const ControlMessage& message) {
  switch (message.type) {
    case ControlType::kOk:
    case ControlType::kSessionGone:
      return absl::OkStatus();
    case ControlType::kRefused:
      return absl::FailedPreconditionError(
          absl::StrCat("the launcher refused: ", message.body["message"].AsString().value_or("")));
    case ControlType::kLaunched: {
      MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(message.body["proc"]));
      MONARCH_ASSIGN_OR_RETURN(const int64_t pid, message.body["pid"].AsInt());
      events_->OnLaunched(proc.proc, pid);
      return absl::OkStatus();
    }
    case ControlType::kLaunchFailed: {
      MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(message.body["proc"]));
      MONARCH_ASSIGN_OR_RETURN(const std::string step, message.body["step"].AsString());
      MONARCH_ASSIGN_OR_RETURN(const std::string text, message.body["message"].AsString());
      events_->OnLaunchFailed(proc.proc, step, text);
      return absl::OkStatus();
    }
    case ControlType::kDying:
    case ControlType::kExited: {
      MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, ProcAddressFromValue(message.body["proc"]));
      MONARCH_ASSIGN_OR_RETURN(ProcExit exit, ExitFromBody(message.body));
      exit.confirmed = message.type == ControlType::kExited;
      if (exit.confirmed) {
        events_->OnExited(proc.proc, exit);
      } else {
        events_->OnDying(proc.proc, exit);
      }
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected message type ", static_cast<int>(message.type)));
  }
}

void LauncherLink::OnClosed(NativeConnection&, const absl::Status& why) {
  // A launcher that leaves closes first. One that closes otherwise, or talks nonsense, cannot be steered any
  // more.
  if (ending_ && absl::IsUnavailable(why)) return;
  if (!absl::IsUnavailable(why)) Kill(std::string(why.message()).c_str());
}

void LauncherLink::Kill(const char* why) {
  LogError("daemon", "launcher killed")
      .With("session", session_.ToHex())
      .With("pid", process_.pid)
      .With("reason", std::string(why));
  syscall(SYS_pidfd_send_signal, process_.pidfd.get(), SIGKILL, nullptr, 0);
}

void LauncherLink::OnPidfd() {
  const std::shared_ptr<NativeConnection> connection = connection_;
  // What it had reported before it died was sent.
  if (!connection->closed()) connection->DrainNow();
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(process_.pid), &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
    end_ = info.si_code == CLD_EXITED ? absl::StrCat("exited with status ", info.si_status)
                                      : absl::StrCat("was killed by signal ", info.si_status);
  }
  loop_->Unwatch(process_.pidfd.get());
  events_->OnLauncherGone();
}

}  // namespace monarch
