#include "tests/sim/process.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/version.h"
#include "daemon/protocol.h"
#include "message/frame.h"

namespace monarch::sim {

Process::Process(World* world, int host, std::string mark)
    : world_(world),
      host_(host),
      mark_(std::move(mark)),
      pid_(world->NewPid()),
      pidfd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MONARCH_CHECK(pidfd_.valid());
}

void Process::Die(int code, int signal) {
  if (!alive_) return;
  alive_ = false;
  world_->Trace("host ", host_, ": pid ", pid_, " ends, code=", code, " signal=", signal);
  OnDeath();
  MONARCH_CHECK(eventfd_write(pidfd_.get(), 1) == 0);
  if (on_death) on_death(code, signal);
}

void Process::After(absl::Duration delay, EventLoop::Task task) {
  world_->After(delay, [this, task = std::move(task)]() mutable {
    if (alive_) task();
  });
}

Mailbox::Mailbox(World* world, PacketSocket socket, Handler handler)
    : world_(world),
      socket_(std::move(socket)),
      handler_(std::move(handler)),
      alive_(std::make_shared<bool>(true)),
      busy_until_(world->Now()) {
  MONARCH_CHECK(world_->outside().WatchFd(socket_.fd(), EPOLLIN, [this](uint32_t) { OnReadable(); }).ok());
}

Mailbox::~Mailbox() { world_->outside().Unwatch(socket_.fd()); }

void Mailbox::OnReadable() {
  for (;;) {
    Packet packet;
    const absl::StatusOr<bool> got = socket_.TryReceive(&packet);
    if (got.ok() && !*got) return;
    if (got.ok()) {
      waiting_.emplace_back(std::move(packet));
    } else {
      waiting_.emplace_back(std::nullopt);
      world_->outside().Unwatch(socket_.fd());
    }
    busy_until_ =
        std::max(busy_until_, world_->Now()) + world_->random().Between(absl::ZeroDuration(), slowness);
    world_->After(busy_until_ - world_->Now(), [this, alive = std::weak_ptr<bool>(alive_)] {
      if (alive.lock()) HandleNext();
    });
    if (!got.ok()) return;
  }
}

void Mailbox::HandleNext() {
  std::optional<Packet> packet = std::move(waiting_.front());
  waiting_.pop_front();
  handler_(packet ? &*packet : nullptr);
}

void Mailbox::Send(ControlType type, uint32_t request, Value::Map body, const std::vector<int>& fds) {
  SendBytes(*EncodeControl(ControlMessage{type, request, Value(std::move(body))}), fds);
}

void Mailbox::SendBytes(const std::string& bytes, const std::vector<int>& fds) {
  const absl::StatusOr<bool> sent = socket_.TrySend(bytes, fds);
  // Daemons that are frozen for long do not read; the little that is sent here fits all the same.
  if (sent.ok()) MONARCH_CHECK(*sent);
}

Member::Member(World* world, Ledger* ledger, int host, std::string mark, PacketSocket socket)
    : Process(world, host, std::move(mark)),
      ledger_(ledger),
      mailbox_(std::make_unique<Mailbox>(world, std::move(socket),
                                         [this](Packet* packet) { OnPacket(packet); })) {}

void Member::Hello(const char* role, Value::Map more) {
  more.insert({{"protocol", Value(kNativeProtocol)},
               {"version", Value(kVersion)},
               {"role", Value(role)},
               {"pid", Value(int64_t{pid()})}});
  std::vector<int> fds = {world().doorbell().memfd(), world().doorbell().bell(), world().segment()};
  if (is_client_) fds.insert(fds.end(), {world().null(), world().null()});
  mailbox_->Send(ControlType::kHello, 1, std::move(more), fds);
}

void Member::StartClient(std::function<void(Member&)> welcomed) {
  is_client_ = true;
  on_welcome_ = std::move(welcomed);
  Hello("client", {{"name", Value("sim")}});
}

void Member::StartWorker(const ProcAddress& address, const StartToken& token, const WorkerPlan& plan) {
  address_ = address;
  plan_ = plan;
  const auto die = [this] { plan_.exits_with_zero ? Die(0, 0) : Die(0, SIGSEGV); };
  if (plan.fate == WorkerPlan::Fate::kSilent) return;
  if (plan.fate == WorkerPlan::Fate::kDiesUnconnected) return After(plan.until_hello, die);
  After(plan.until_hello, [this, token] { Hello("worker", {{"token", ToValue(token)}}); });
}

void Member::Signal(int signal) {
  if (!alive()) return;
  if (signal != SIGKILL && plan_.ignores_term) return;
  if (signal == SIGKILL) return Die(0, SIGKILL);
  After(world().random().Between(absl::ZeroDuration(), absl::Milliseconds(5)),
        [this, signal] { Die(0, signal); });
}

void Member::Goodbye() {
  if (mailbox_) mailbox_->Send(ControlType::kGoodbye, 9, {});
}

void Member::Connect(const ProcAddress& peer) {
  if (mailbox_ && welcome_) mailbox_->Send(ControlType::kConnect, 5, {{"peer", ToValue(peer)}});
}

void Member::SendFrame(const ProcAddress& peer, size_t bytes) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || !found->second || notices_[peer].dead > 0 || !mailbox_) return;
  FrameHeader header;
  header.kind = FrameKind::kPortMessage;
  header.session = session_;
  header.sender = ActorAddress{address_, kRootActor};
  header.receiver = ActorAddress{peer, kRootActor};
  header.sequence = ++sent_[peer];
  header.port_id = 1;
  if (bytes > 0) {
    header.payload_kind = PayloadKind::kRaw;
    header.flags = kFlagInSegment;
    header.payload_length = bytes;
  }
  std::string packet(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, absl::MakeSpan(reinterpret_cast<uint8_t*>(packet.data()), packet.size()));
  mailbox_->SendBytes(packet);
}

void Member::SendGarbage() {
  if (mailbox_) mailbox_->SendBytes("nonsense");
}

void Member::OnPacket(Packet* packet) {
  if (packet == nullptr) {
    world().Trace(address_.ToString(), " is cut off");
    cut_off_ = true;
    // A client's program fails then; what becomes of workers is their launcher's business.
    if (is_client_) {
      After(world().random().Between(absl::ZeroDuration(), absl::Seconds(1)), [this] { Die(1, 0); });
    }
    return;
  }
  if (IsFramePacket(packet->bytes)) return OnFrame(packet->bytes);
  const absl::StatusOr<ControlMessage> message = DecodeControl(packet->bytes);
  if (!message.ok()) return world().Violate("not a message: ", message.status().ToString());
  OnMessage(*message);
}

void Member::OnMessage(const ControlMessage& message) {
  switch (message.type) {
    case ControlType::kWelcome:
      welcome_ = true;
      address_ = *ProcAddressFromValue(message.body["self"]);
      session_ = SessionId(*Id128FromValue(message.body["session"]));
      control_token_ = StartToken(*Id128FromValue(message.body["control_token"]));
      ledger_->OnWelcome(*this);
      if (on_welcome_) on_welcome_(*this);
      if (is_client_ || plan_.fate == WorkerPlan::Fate::kMute) return;
      return After(plan_.until_ready, [this] {
        if (plan_.fate == WorkerPlan::Fate::kDiesConnected) {
          return plan_.exits_with_zero ? Die(0, 0) : Die(7, 0);
        }
        ledger_->OnReady(*this);
        mailbox_->Send(ControlType::kReady, 0, {});
      });
    case ControlType::kStop:
      if (plan_.ignores_stop) return;
      return After(plan_.until_stopped, [this] { Die(0, 0); });
    case ControlType::kProcDead:
    case ControlType::kProcDetail:
      return OnNotice(message);
    case ControlType::kIntroduce: {
      const ProcAddress peer = *ProcAddressFromValue(message.body["peer"]);
      if (notices_[peer].dead > 0)
        world().Violate(address_.ToString(), " is introduced to ", peer.ToString(), ", whose death it knows");
      peers_[peer] = message.body["mode"].AsString().value_or("") == "relay";
      return;
    }
    case ControlType::kUndelivered:
      return OnReturned(message);
    case ControlType::kOk:
      if (message.request == 9) After(absl::Milliseconds(1), [this] { Die(0, 0); });
      return;
    default:
      return;
  }
}

void Member::OnNotice(const ControlMessage& message) {
  const ProcAddress peer = *ProcAddressFromValue(message.body["peer"]);
  const FailureEvent event = *FailureEventFromValue(message.body["event"]);
  Notice& notice = notices_[peer];
  if (message.type == ControlType::kProcDetail) {
    if (notice.dead == 0) ledger_->OnEarlyDetail(*this, peer);
    ++notice.detail;
    return;
  }
  ++notice.dead;
  notice.kind = event.kind;
  ledger_->OnNotice(*this, peer, event, notice.dead);
}

void Member::OnReturned(const ControlMessage& message) {
  const std::string head = *message.body["header"].AsBytes();
  const auto header = DecodeFrameHeader(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(head.data()), head.size()), 1 << 20);
  if (!header.ok()) return world().Violate("returned, but not a frame: ", header.status().ToString());
  ++returned_[header->receiver.proc];
}

void Member::OnFrame(const std::string& bytes) {
  const auto header = DecodeFrameHeader(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 1 << 20);
  if (!header.ok()) return world().Violate("not a frame: ", header.status().ToString());
  const ProcAddress& sender = header->sender.proc;
  ledger_->CountFrame();
  if (!(header->receiver.proc == address_)) world().Violate("a frame for another process");
  if (notices_[sender].dead > 0)
    world().Violate(address_.ToString(), " gets a frame of ", sender.ToString(), ", whose death it knows");
  if (!peers_.contains(sender))
    world().Violate(address_.ToString(), " gets a frame of ", sender.ToString(), " before its introduction");
  if (header->sequence != ++received_[sender])
    world().Violate(address_.ToString(), " gets frame ", header->sequence, " of ", sender.ToString(),
                    ", expected ", received_[sender]);
}

}  // namespace monarch::sim
