#include "tests/sim/control.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/packet_stream.h"

namespace monarch::sim {
namespace {

// As of the control plane's client between daemons.
constexpr absl::Duration kMargin = absl::Seconds(15);
constexpr int kSpawnPhases = 4;

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// Threading: as HostControl.
class SimHostControl final : public HostControl, private NativeConnection::Handler {
 public:
  SimHostControl(ControlCalls* calls, EventLoop* loop, ScopedFd socket, const StartToken& token)
      : calls_(calls),
        loop_(loop),
        token_(token),
        connection_(NativeConnection::Start(loop, std::make_unique<PacketStream>(std::move(socket)), this,
                                            NativeConnection::Limits())) {}
  ~SimHostControl() override {
    connection_->Close();
    FailAll();
  }

  void Spawn(const SpawnRequest& request, absl::AnyInvocable<void(const SpawnResult&)> reply) override {
    const absl::Duration phase = request.phase_timeout > absl::ZeroDuration()
                                     ? request.phase_timeout
                                     : absl::Milliseconds(monarch::Limits().spawn_phase_ms);
    Start(request, kSpawnPhases * phase, [reply = std::move(reply)](ControlAnswer answer) mutable {
      if (!answer.status.ok()) answer.spawn.error.status = answer.status;
      reply(answer.spawn);
    });
  }
  void Stop(const StopRequest& request,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<FailureEvent>>)> reply) override {
    Start(request, request.grace + request.kill_after,
          [reply = std::move(reply)](ControlAnswer answer) mutable {
            if (!answer.status.ok()) return reply(answer.status);
            reply(std::move(answer.ends));
          });
  }
  void Signal(const std::vector<ProcAddress>& procs, int signal,
              absl::AnyInvocable<void(absl::Status)> reply) override {
    Start(SignalRequest{procs, signal}, absl::ZeroDuration(),
          [reply = std::move(reply)](const ControlAnswer& answer) mutable { reply(answer.status); });
  }
  void Shutdown(const HostId& host, absl::Duration grace, absl::Duration kill_after,
                absl::AnyInvocable<void(absl::Status)> reply) override {
    Start(ShutdownRequest{host, grace, kill_after}, grace + kill_after,
          [reply = std::move(reply)](const ControlAnswer& answer) mutable { reply(answer.status); });
  }

 private:
  using Done = absl::AnyInvocable<void(ControlAnswer)>;
  struct Pending {
    Done done;
    EventLoop::TimerId timer = 0;
  };

  template <typename What>
  void Start(What what, absl::Duration timeout, Done done) {
    const uint32_t number = calls_->Add({token_, std::move(what)});
    pending_[number] = {std::move(done), 0};
    if (broken_) return Finish(number, absl::UnavailableError("the host is gone"));
    pending_[number].timer = loop_->RunAfter(timeout + kMargin, [this, number] {
      pending_.at(number).timer = 0;
      Finish(number, absl::DeadlineExceededError("the host does not answer"));
    });
    connection_->Send({ControlType::kConnect, number, Value::Map{}});
  }

  void Finish(uint32_t number, const absl::Status& status) {
    const auto found = pending_.find(number);
    if (found == pending_.end()) return;
    if (found->second.timer != 0) loop_->Cancel(found->second.timer);
    const std::shared_ptr<ControlCall> call = calls_->Find(number);
    calls_->Remove(number);
    ControlAnswer answer;
    if (status.ok()) {
      answer = call->answer;
    } else {
      answer.status = status;
    }
    loop_->Post([done = std::move(found->second.done), answer = std::move(answer)]() mutable {
      done(std::move(answer));
    });
    pending_.erase(found);
  }

  void FailAll() {
    while (!pending_.empty()) Finish(pending_.begin()->first, absl::UnavailableError("the host is gone"));
  }

  absl::Status OnPacket(NativeConnection&, Packet packet) override {
    MONARCH_ASSIGN_OR_RETURN(const ControlMessage message, DecodeControl(packet.bytes));
    Finish(message.request, absl::OkStatus());
    return absl::OkStatus();
  }
  void OnClosed(NativeConnection&, const absl::Status&) override {
    broken_ = true;
    FailAll();
  }

  ControlCalls* const calls_;
  EventLoop* const loop_;
  const StartToken token_;
  std::shared_ptr<NativeConnection> connection_;
  std::map<uint32_t, Pending> pending_;
  bool broken_ = false;
};

}  // namespace

uint32_t ControlCalls::Add(ControlRequest request) {
  calls_[next_] = std::make_shared<ControlCall>(ControlCall{std::move(request), {}});
  return next_++;
}

std::shared_ptr<ControlCall> ControlCalls::Find(uint32_t number) const {
  const auto found = calls_.find(number);
  return found == calls_.end() ? nullptr : found->second;
}

std::unique_ptr<HostControl> MakeSimHostControl(ControlCalls* calls, EventLoop* loop, ScopedFd socket,
                                                const StartToken& token) {
  return std::make_unique<SimHostControl>(calls, loop, std::move(socket), token);
}

void ServeControl(DaemonContext* context, SessionManager* sessions, const ControlRequest& request,
                  absl::AnyInvocable<void(ControlAnswer)> reply) {
  ControlAnswer answer;
  const std::optional<ControlPeer> peer = context->control_peers->Find(request.token);
  Session* session = peer ? sessions->Find(peer->session) : nullptr;
  if (session == nullptr) {
    answer.status = peer ? absl::FailedPreconditionError("the session of this connection has ended")
                         : absl::PermissionDeniedError("this request is of no process of a session");
    return reply(std::move(answer));
  }
  std::visit(Overloaded{
                 [&](const SpawnRequest& what) {
                   session->Spawn(what, peer->asker,
                                  [reply = std::move(reply)](const SpawnResult& result) mutable {
                                    reply(ControlAnswer{absl::OkStatus(), result, {}, {}});
                                  });
                 },
                 [&](const StopRequest& what) {
                   session->Stop(what, [reply = std::move(reply)](std::vector<FailureEvent> ends) mutable {
                     reply(ControlAnswer{absl::OkStatus(), {}, std::move(ends), {}});
                   });
                 },
                 [&](const SignalRequest& what) {
                   session->Signal(what.procs, what.signal,
                                   [reply = std::move(reply)](const absl::Status& status) mutable {
                                     reply(ControlAnswer{status, {}, {}, {}});
                                   });
                 },
                 [&](const ShutdownRequest& what) {
                   session->ShutdownHost(what.host, what.grace, what.kill_after,
                                         [reply = std::move(reply)](const absl::Status& status) mutable {
                                           reply(ControlAnswer{status, {}, {}, {}});
                                         });
                 },
                 [&](const AttachRequest& what) {
                   session->AttachHost(
                       what.address, what.timeout,
                       [reply = std::move(reply)](const absl::StatusOr<AttachedHost>& host) mutable {
                         reply(ControlAnswer{host.status(), {}, {}, host.ok() ? *host : AttachedHost()});
                       });
                 },
             },
             request.what);
}

ControlServer::~ControlServer() {
  for (auto& [number, connection] : connections_) connection->Close();
}

void ControlServer::Serve(ScopedFd socket) {
  const uint64_t number = next_++;
  auto connection = NativeConnection::Start(context_->loop, std::make_unique<PacketStream>(std::move(socket)),
                                            this, NativeConnection::Limits());
  connection->proc = number;
  connections_[number] = std::move(connection);
}

absl::Status ControlServer::OnPacket(NativeConnection& connection, Packet packet) {
  MONARCH_ASSIGN_OR_RETURN(const ControlMessage message, DecodeControl(packet.bytes));
  const std::shared_ptr<ControlCall> call = calls_->Find(message.request);
  if (call == nullptr) return absl::OkStatus();  // its asker has given up
  // Handlers run on threads of their own before they come to the loop.
  context_->loop->Post([this, call, number = message.request,
                        weak = std::weak_ptr<NativeConnection>(connection.shared_from_this())] {
    ServeControl(context_, sessions_, call->request, [call, number, weak](ControlAnswer answer) {
      call->answer = std::move(answer);
      if (const auto open = weak.lock()) open->Send({ControlType::kOk, number, Value::Map{}});
    });
  });
  return absl::OkStatus();
}

void ControlServer::OnClosed(NativeConnection& connection, const absl::Status&) {
  connections_.erase(connection.proc);
}

}  // namespace monarch::sim
