#include "daemon/session_manager.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "daemon/protocol.h"
#include "daemon/shared_fds.h"
#include "daemon/system_users.h"
#include "message/utf8.h"

namespace monarch {
namespace {

// Each up to 64 MiB, and the run directory is often in memory.
constexpr size_t kLogsMax = 16;

bool HasEnded(const ScopedFd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, 0) != 0;
}

}  // namespace

SessionManager::SessionManager(DaemonContext* context, OpenControl open_control,
                               std::function<void()> session_gone)
    : context_(context), open_control_(std::move(open_control)), session_gone_(std::move(session_gone)) {}

SessionManager::~SessionManager() {
  for (auto& [key, pending] : pending_) {
    pending.connection->Close();
    if (pending.timer != 0) context_->loop->Cancel(pending.timer);
  }
}

void SessionManager::AddPeer(ScopedFd socket, const PeerCredentials& peer, bool patient) {
  Pending pending;
  pending.peer = peer;
  // Opened now, while the peer certainly is who it was: its number may be another's by the time of its hello.
  absl::StatusOr<ScopedFd> pidfd = context_->open_pidfd(peer.pid);
  if (pidfd.ok()) pending.pidfd = *std::move(pidfd);
  const uint64_t key = next_pending_++;
  pending.connection = NativeConnection::Start(context_->loop, PacketSocket(std::move(socket)), this,
                                               context_->connection_limits());
  pending.connection->proc = key;
  if (!patient) {
    pending.timer = context_->loop->RunAfter(kHelloMax, [this, key] {
      pending_.at(key).timer = 0;
      LogWarning("daemon", "connection closed: no hello").With("pid", pending_.at(key).peer.pid);
      TakePending(key).connection->Close();
    });
  }
  pending_.emplace(key, std::move(pending));
}

SessionManager::Pending SessionManager::TakePending(uint64_t key) {
  const auto found = pending_.find(key);
  Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.timer != 0) context_->loop->Cancel(pending.timer);
  return pending;
}

absl::Status SessionManager::OnPacket(NativeConnection& connection, Packet packet) {
  const auto found = pending_.find(connection.proc);
  if (found == pending_.end()) return absl::InvalidArgumentError("a second hello");
  MONARCH_ASSIGN_OR_RETURN(const ControlMessage message, DecodeControl(packet.bytes));
  if (message.type != ControlType::kHello)
    return absl::InvalidArgumentError("the first message is not a hello");
  const absl::Status opened = OnHello(&found->second, message, std::move(packet.fds));
  if (!opened.ok()) connection.Refuse(message.request, opened);
  return opened;
}

void SessionManager::OnClosed(NativeConnection& connection, const absl::Status& why) {
  const auto found = pending_.find(connection.proc);
  if (found == pending_.end()) return;
  const Pending pending = TakePending(connection.proc);
  LogWarning("daemon", "connection closed before its hello was accepted")
      .With("pid", pending.peer.pid)
      .With("error", std::string(why.message()));
}

absl::Status SessionManager::OnHello(Pending* pending, const ControlMessage& message,
                                     std::vector<ScopedFd> fds) {
  if (message.body["role"].AsString().value_or("") == "returned") return OnReturn(pending, message);
  MONARCH_RETURN_IF_ERROR(CheckHello(message.body, "client"));
  MONARCH_RETURN_IF_ERROR(CheckRoom());
  if (fds.size() != 3 && fds.size() != 5 && fds.size() != 6) {
    return absl::InvalidArgumentError(absl::StrCat("hello: ", fds.size(), " fds, wanted 5 or 6"));
  }
  if (context_->is_system) {
    MONARCH_RETURN_IF_ERROR(CheckSystemClient(pending->peer.uid, pending->peer.pid, context_->allow_root));
    // Else what was looked at may be another by that number.
    if (!pending->pidfd.valid() || HasEnded(pending->pidfd))
      return absl::UnauthenticatedError("hello: its process has ended");
  }
  Session::Client client;
  MONARCH_ASSIGN_OR_RETURN(client.shared, TakeSharedFds(&fds));
  MONARCH_ASSIGN_OR_RETURN(client.name, message.body["name"].AsString());
  client.name = ToUtf8(client.name.substr(0, 1024));
  if (fds.size() >= 5) {
    client.out = std::move(fds[3]);
    client.err = std::move(fds[4]);
  }
  if (fds.size() == 6) client.output_stream = std::move(fds[5]);
  Pending taken = TakePending(pending->connection->proc);
  client.uid = taken.peer.uid;
  client.pid = taken.peer.pid;
  client.pidfd = std::move(taken.pidfd);
  client.connection = std::move(taken.connection);
  client.hello_request = message.request;
  auto session = std::make_unique<Session>(context_, std::move(client), open_control_,
                                           [this](Session* gone) { OnSessionGone(gone); });
  const SessionId id = session->id();
  sessions_.emplace(id, std::move(session));
  return absl::OkStatus();
}

absl::Status SessionManager::OnReturn(Pending* pending, const ControlMessage& message) {
  MONARCH_RETURN_IF_ERROR(CheckHello(message.body, "returned"));
  MONARCH_ASSIGN_OR_RETURN(const Id128 id, Id128FromValue(message.body["session"]));
  Session* session = Find(SessionId(id));
  if (session == nullptr) return absl::NotFoundError("hello: monarchd has restarted without that session");
  const uint64_t key = pending->connection->proc;
  MONARCH_RETURN_IF_ERROR(session->Resume(message, pending->peer.pid, pending->connection));
  TakePending(key);
  return absl::OkStatus();
}

void SessionManager::AddAdopted(AdoptedSession adopted) {
  const SessionId id = adopted.state.session;
  sessions_.emplace(id, std::make_unique<Session>(context_, std::move(adopted), open_control_,
                                                  [this](Session* gone) { OnSessionGone(gone); }));
}

absl::Status SessionManager::CheckRoom() const {
  if (!closing_.empty())
    return absl::UnavailableError(absl::StrCat("hello: monarchd is stopping, ", closing_));
  const int64_t sessions_max = context_->limits.sessions_per_host_max;
  if (static_cast<int64_t>(sessions_.size()) < sessions_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("hello: sessions_per_host_max=", sessions_max, " reached"));
}

void SessionManager::Stop(const SessionId& id, const std::string& reason, absl::Duration kill_after,
                          absl::AnyInvocable<void(absl::StatusOr<std::vector<FailureEvent>>)> reply) {
  Session* session = Find(id);
  if (session == nullptr)
    return reply(absl::NotFoundError(absl::StrCat("stop: no session ", id.ToHex(), " on this host")));
  Stopping stopping;
  stopping.reply = std::move(reply);
  for (const auto& [proc, record] : session->procs().all()) {
    if (!record.is_client && record.alive()) stopping.procs.push_back(record.description.address);
  }
  stopping_.emplace(id, std::move(stopping));
  session->End(reason, kill_after);
}

void SessionManager::OnSessionGone(Session* gone) {
  KeepLog(gone->log_path());
  const auto [begin, end] = stopping_.equal_range(gone->id());
  for (auto it = begin; it != end; ++it) {
    std::vector<FailureEvent> ends;
    for (const ProcAddress& proc : it->second.procs) {
      if (const FailureEvent* how = gone->procs().EndOf(proc)) ends.push_back(*how);
    }
    it->second.reply(std::move(ends));
  }
  stopping_.erase(begin, end);
  sessions_.erase(gone->id());
  session_gone_();
}

void SessionManager::AddHost(PeerListener::Connection connection) {
  const std::string role = connection.hello.body["role"].AsString().value_or("");
  absl::Status status = CheckHello(connection.hello.body, role);
  if (status.ok() && role == "session") {
    status = OnSessionOfHost(connection);
  } else if (status.ok() && (role == "control" || role == "upcall")) {
    status = OnControlOfHost(connection, role == "upcall");
  } else if (status.ok()) {
    status = absl::InvalidArgumentError("hello: a daemon's role is session, control or upcall");
  }
  if (!status.ok()) RefusePeer(std::move(connection), status);
}

absl::Status SessionManager::AnswerHost(PeerListener::Connection& connection, Value::Map more) {
  more.insert({{"protocol", Value(kNativeProtocol)},
               {"version", Value(kVersion)},
               {"host", ToValue(context_->host)},
               {"host_name", Value(context_->host_name)}});
  const ControlMessage welcome{ControlType::kPeerWelcome, connection.hello.request, Value(std::move(more))};
  // It fits the buffer of a connection on which nothing was sent.
  MONARCH_ASSIGN_OR_RETURN(const std::string packet, EncodeControl(welcome));
  MONARCH_RETURN_IF_ERROR(connection.stream->TrySend(packet, {}).status());
  return connection.stream->Flush().status();
}

absl::Status SessionManager::OnSessionOfHost(PeerListener::Connection& connection) {
  const Value& body = connection.hello.body;
  Session::Home home;
  MONARCH_ASSIGN_OR_RETURN(const Id128 session_id, Id128FromValue(body["session"]));
  home.session = SessionId(session_id);
  MONARCH_ASSIGN_OR_RETURN(const Id128 host, Id128FromValue(body["host"]));
  home.host.host = HostId(host);
  MONARCH_ASSIGN_OR_RETURN(home.host.name, body["host_name"].AsString());
  MONARCH_ASSIGN_OR_RETURN(home.client, ProcAddressFromValue(body["client"]));
  MONARCH_ASSIGN_OR_RETURN(home.client_pid, body["client_pid"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(home.client_name, body["name"].AsString());
  home.host.address = "its home";
  home.uid = connection.uid;
  MONARCH_RETURN_IF_ERROR(CheckRoom());
  if (home.host.host == context_->host) return absl::InvalidArgumentError("hello: that is this host itself");
  if (Find(home.session) != nullptr) {
    return absl::AlreadyExistsError(
        "the session has this host already, or what was of it here is still ending");
  }
  const StartToken ticket(context_->random_id());
  home.ticket = ticket;
  MONARCH_RETURN_IF_ERROR(AnswerHost(connection, {{"ticket", ToValue(ticket)}}));
  const SessionId id = home.session;
  sessions_.emplace(
      id, std::make_unique<Session>(context_, std::move(home), std::move(connection.stream), open_control_,
                                    [this](Session* gone) { OnSessionGone(gone); }));
  return absl::OkStatus();
}

absl::Status SessionManager::OnControlOfHost(PeerListener::Connection& connection, bool reversed) {
  const Value& body = connection.hello.body;
  MONARCH_ASSIGN_OR_RETURN(const Id128 session_id, Id128FromValue(body["session"]));
  MONARCH_ASSIGN_OR_RETURN(const Id128 ticket, Id128FromValue(body["ticket"]));
  Session* session = Find(SessionId(session_id));
  if (session == nullptr || !session->is_guest() || ticket != session->ticket())
    return absl::UnauthenticatedError("hello: no such session of another host, or a wrong ticket");
  MONARCH_RETURN_IF_ERROR(AnswerHost(connection, {}));
  ScopedFd socket = connection.stream->ReleaseFd();
  if (!reversed) return session->hosts().ServeHome(std::move(socket));
  session->hosts().SetHomeControl(std::move(socket));
  return absl::OkStatus();
}

void SessionManager::KeepLog(std::string path) {
  if (access(path.c_str(), F_OK) != 0) return;
  logs_.push_back(std::move(path));
  if (logs_.size() <= kLogsMax) return;
  unlink(logs_.front().c_str());
  unlink(absl::StrCat(logs_.front(), ".1").c_str());
  logs_.pop_front();
}

Session* SessionManager::Find(const SessionId& id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void SessionManager::EndAll(const std::string& reason) {
  closing_ = reason;
  for (const auto& [id, session] : sessions_) session->End(reason);
}

}  // namespace monarch
