#include "daemon/adoption.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pidfd.h"
#include "base/status_macros.h"
#include "daemon/launcher/process_stat.h"
#include "daemon/state_file.h"
#include "daemon/unix_listener.h"

namespace monarch {
namespace {

constexpr absl::Duration kAnswerMax = absl::Seconds(2);
// For all that one launcher tells, which is another user's program where the daemon is the system's.
constexpr absl::Duration kBookMax = absl::Seconds(30);
constexpr size_t kBookBytesMax = size_t{256} << 20;

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  return boot;
}

std::string SessionFile(const std::string& run_dir, const SessionId& session, const char* ending) {
  return absl::StrCat(run_dir, "/session-", session.ToHex(), ending);
}

absl::Status ReceiveBook(PacketSocket* socket, AdoptedSession* adopted) {
  const SystemClock clock;
  const absl::Duration end = clock.Now() + kBookMax;
  absl::Duration deadline = clock.Now() + kAnswerMax;
  size_t bytes = 0;
  while (true) {
    Packet packet;
    MONARCH_ASSIGN_OR_RETURN(const bool received, socket->TryReceive(&packet));
    const absl::Duration now = clock.Now();
    if (now > end || bytes > kBookBytesMax)
      return absl::ResourceExhaustedError("its launcher tells more than any session is");
    if (!received) {
      const absl::Duration left = deadline - now;
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("its launcher does not answer");
      const absl::Status waited =
          WaitReadable(socket->fd(), static_cast<int>(left / absl::Milliseconds(1)) + 1);
      if (!waited.ok() && !absl::IsCancelled(waited) && !absl::IsDeadlineExceeded(waited)) return waited;
      continue;
    }
    deadline = now + kAnswerMax;
    bytes += packet.bytes.size();
    MONARCH_ASSIGN_OR_RETURN(ControlMessage message, DecodeControl(packet.bytes));
    if (message.type == ControlType::kOk) {
      if (packet.fds.size() != 1) return absl::InvalidArgumentError("its launcher has no death board");
      adopted->board = std::move(packet.fds[0]);
      return absl::OkStatus();
    }
    if (message.type != ControlType::kKeep) {
      adopted->news.push_back(std::move(message));
      continue;
    }
    const absl::Status added = adopted->book.Add(message.body, std::move(packet.fds));
    if (added.ok()) continue;
    LogError("daemon", "an entry of a session is not understood and left out")
        .With("session", adopted->state.session.ToHex())
        .With("key", message.body["key"].AsString().value_or(""))
        .With("error", added.ToString());
  }
}

// Once it is certain that `adopted->process` is the launcher.
absl::Status TalkToLauncher(AdoptedSession* adopted) {
  MONARCH_ASSIGN_OR_RETURN(PacketSocket socket, PacketSocket::Connect(adopted->state.socket));
  MONARCH_ASSIGN_OR_RETURN(const PeerCredentials peer, ReadPeerCredentials(socket.fd()));
  if (peer.pid != adopted->process.pid) {
    return absl::PermissionDeniedError(
        absl::StrCat("process ", peer.pid, " answers in place of its launcher"));
  }
  MONARCH_ASSIGN_OR_RETURN(
      const std::string packet,
      EncodeControl({ControlType::kResume, 0, Value::Map{{"token", ToValue(adopted->state.token)}}}));
  MONARCH_RETURN_IF_ERROR(socket.TrySend(packet).status());
  MONARCH_RETURN_IF_ERROR(ReceiveBook(&socket, adopted));
  if (!adopted->book.client.pidfd.valid()) return absl::DataLossError("its client's entry is missing");
  adopted->process.socket = std::move(socket);
  return absl::OkStatus();
}

absl::StatusOr<AdoptedSession> Adopt(const std::string& run_dir, const std::string& path,
                                     const HostId& host) {
  MONARCH_ASSIGN_OR_RETURN(const Value value, ReadStateFile(path));
  AdoptedSession adopted;
  MONARCH_ASSIGN_OR_RETURN(adopted.state, LauncherStateFromValue(value));
  if (path != LauncherStatePath(run_dir, adopted.state.session))
    return absl::DataLossError("it is another session's");
  adopted.process.pid = adopted.state.pid;
  MONARCH_ASSIGN_OR_RETURN(adopted.process.pidfd, OpenPidfd(adopted.state.pid));
  // After the pidfd was opened: what it holds is what is looked at.
  const std::optional<ProcessStat> stat = ReadProcessStat(adopted.state.pid);
  if (!stat || stat->start_time != adopted.state.start_time)
    return absl::NotFoundError("its launcher has ended");
  const absl::Status talked = adopted.state.host == host
                                  ? TalkToLauncher(&adopted)
                                  : absl::FailedPreconditionError("this host has another id now");
  if (talked.ok()) return adopted;
  syscall(SYS_pidfd_send_signal, adopted.process.pidfd.get(), SIGTERM, nullptr, 0);
  return talked;
}

}  // namespace

Value ToValue(const LauncherState& state) {
  return Value::Map{{"session", ToValue(state.session)}, {"host", ToValue(state.host)},
                    {"pid", Value(int64_t{state.pid})},  {"start_time", Value(state.start_time)},
                    {"token", ToValue(state.token)},     {"socket", Value(Value::Bytes{state.socket})}};
}

absl::StatusOr<LauncherState> LauncherStateFromValue(const Value& value) {
  LauncherState state;
  MONARCH_ASSIGN_OR_RETURN(const Id128 session, Id128FromValue(value["session"]));
  MONARCH_ASSIGN_OR_RETURN(const Id128 host, Id128FromValue(value["host"]));
  MONARCH_ASSIGN_OR_RETURN(const Id128 token, Id128FromValue(value["token"]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t pid, value["pid"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t start_time, value["start_time"].AsInt());
  if (session.is_zero() || token.is_zero() || pid <= 1 || pid > INT32_MAX)
    return absl::InvalidArgumentError("launcher state: out of range");
  MONARCH_ASSIGN_OR_RETURN(state.socket, value["socket"].AsBytes());
  state.session = SessionId(session);
  state.host = HostId(host);
  state.token = StartToken(token);
  state.pid = static_cast<pid_t>(pid);
  state.start_time = static_cast<uint64_t>(start_time);
  return state;
}

std::string LauncherStatePath(const std::string& run_dir, const SessionId& session) {
  return SessionFile(run_dir, session, ".state");
}

std::string LauncherSocketPath(const std::string& directory, const SessionId& session) {
  return SessionFile(directory, session, ".sock");
}

absl::StatusOr<LauncherResume> SaveLauncher(const std::string& run_dir, LauncherState state,
                                            absl::Duration absence_max) {
  const std::optional<ProcessStat> stat = ReadProcessStat(state.pid);
  if (!stat) return absl::NotFoundError("the launcher has ended");
  state.start_time = stat->start_time;
  state.token = StartToken::Random();
  unlink(state.socket.c_str());
  MONARCH_RETURN_IF_ERROR(WriteStateFile(LauncherStatePath(run_dir, state.session), ToValue(state)));
  return LauncherResume{state.socket, state.token, absence_max};
}

void RemoveLauncherState(const std::string& run_dir, const SessionId& session) {
  const std::string path = LauncherStatePath(run_dir, session);
  if (const absl::StatusOr<Value> value = ReadStateFile(path); value.ok()) {
    if (const auto state = LauncherStateFromValue(*value); state.ok()) unlink(state->socket.c_str());
  }
  unlink(path.c_str());
}

HostState NextHostState(const absl::StatusOr<Value>& saved, const std::string& boot) {
  HostState next{HostId::Random(), 0, boot};
  if (!saved.ok()) return next;
  const absl::StatusOr<Id128> host = Id128FromValue((*saved)["host"]);
  const absl::StatusOr<int64_t> generation = (*saved)["generation"].AsInt();
  const absl::StatusOr<std::string> before = (*saved)["boot"].AsString();
  if (!host.ok() || host->is_zero() || !generation.ok() || *generation < 0 || *generation >= INT32_MAX ||
      !before.ok() || *before != boot)
    return next;
  next.host = HostId(*host);
  next.generation = *generation + 1;
  return next;
}

HostState LoadHostState(const std::string& run_dir) {
  const std::string path = run_dir + "/host.state";
  const absl::StatusOr<Value> saved = ReadStateFile(path);
  if (!saved.ok() && !absl::IsNotFound(saved.status())) {
    LogError("daemon", "the host's state is left out, and it gets another id")
        .With("path", path)
        .With("error", saved.status().ToString());
  }
  const HostState next = NextHostState(saved, BootId());
  const absl::Status written = WriteStateFile(path, Value::Map{{"host", ToValue(next.host)},
                                                               {"generation", Value(next.generation)},
                                                               {"boot", Value(next.boot)}});
  if (!written.ok()) {
    LogError("daemon", "the host's state is not saved, the next daemon gets another id")
        .With("path", path)
        .With("error", written.ToString());
  }
  return next;
}

std::vector<AdoptedSession> AdoptSessions(const std::string& run_dir, const HostId& host) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "session-") && absl::EndsWith(name, ".state")) paths.push_back(entry.path());
  }
  std::vector<AdoptedSession> sessions;
  for (const std::string& path : paths) {
    absl::StatusOr<AdoptedSession> adopted = Adopt(run_dir, path, host);
    if (adopted.ok()) {
      sessions.push_back(*std::move(adopted));
      continue;
    }
    LogWarning("daemon", "a session is not adopted")
        .With("path", path)
        .With("reason", adopted.status().ToString());
    unlink(path.c_str());
  }
  return sessions;
}

}  // namespace monarch
