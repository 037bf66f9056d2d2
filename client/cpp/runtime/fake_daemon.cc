#include "client/cpp/runtime/fake_daemon.h"

#include <sys/epoll.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "message/doorbell.h"
#include "message/frame.h"
#include "message/memfd.h"
#include "message/ring.h"

namespace monarch {
namespace {

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

FakeDaemon::FakeDaemon(const Options& options) : options_(options), introduce_(options.introduce) {
  auto loop = MakeEpollEventLoop();
  MONARCH_CHECK(loop.ok());
  loop_ = *std::move(loop);
  auto board = DeathBoard::Create();
  MONARCH_CHECK(board.ok());
  board_ = *std::move(board);
  thread_ = std::thread([this] { loop_->Run(); });
}

FakeDaemon::~FakeDaemon() {
  loop_->Stop();
  thread_.join();
}

void FakeDaemon::RunInLoop(std::function<void()> task) {
  std::promise<void> done;
  loop_->Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

PacketSocket FakeDaemon::NewProcess() {
  auto pair = PacketSocket::Pair();
  MONARCH_CHECK(pair.ok());
  RunInLoop([&] {
    auto process = std::make_unique<Process>();
    process->socket = std::move(pair->second);
    process->address = {host_, ++last_proc_, 1};
    const int fd = process->socket.fd();
    processes_[fd] = std::move(process);
    MONARCH_CHECK(loop_
                      ->WatchFd(fd, EPOLLIN,
                                [this, fd](uint32_t events) {
                                  if ((events & EPOLLOUT) != 0) Forward(processes_.at(fd).get());
                                  if ((events & EPOLLIN) != 0 || (events & EPOLLHUP) != 0) OnReadable(fd);
                                })
                      .ok());
  });
  return std::move(pair->first);
}

void FakeDaemon::OnReadable(int fd) {
  Packet packet;
  const auto received = processes_.at(fd)->socket.TryReceive(&packet);
  if (received.ok() && *received) {
    OnPacket(processes_.at(fd).get(), std::move(packet));
  } else if (!received.ok()) {
    loop_->Unwatch(fd);
  }
}

void FakeDaemon::OnPacket(Process* process, Packet packet) {
  if (options_.silent) return;
  if (IsFramePacket(packet.bytes)) {
    OnFrame(process, packet);
    return;
  }
  auto message = DecodeControl(packet.bytes);
  MONARCH_CHECK(message.ok());
  switch (message->type) {
    case ControlType::kHello:
      OnHello(process, *message, std::move(packet.fds));
      return;
    case ControlType::kConnect:
      OnConnect(process, message->body);
      return;
    case ControlType::kGoodbye:
    case ControlType::kOpenControl:
      Send(process, ControlType::kOk, message->request, {});
      break;
    default:
      break;
  }
  MutexLock lock(mu_);
  received_.push_back(*std::move(message));
}

void FakeDaemon::OnHello(Process* process, const ControlMessage& message, std::vector<ScopedFd> fds) {
  if (!options_.refuse.empty()) {
    Send(process, ControlType::kRefused, message.request,
         {{"code", 9}, {"message", options_.refuse}, {"version", "9.9.9"}});
    return;
  }
  MONARCH_CHECK(fds.size() >= 3);
  process->pages = std::move(fds);
  Send(process, ControlType::kWelcome, message.request,
       {{"session", ToValue(session_)},
        {"self", ToValue(process->address)},
        {"control_token", ToValue(Id128::Random())},
        {"version", "0.1.0"},
        {"host_name", "test-host"},
        {"run_dir", "/nowhere"},
        {"ring_links_max", options_.relay ? 0 : 256}});
}

FakeDaemon::Process* FakeDaemon::Find(const ProcAddress& address) {
  for (auto& [fd, process] : processes_) {
    if (process->address == address) return process.get();
  }
  return nullptr;
}

void FakeDaemon::OnConnect(Process* process, const Value& body) {
  const auto peer = ProcAddressFromValue(body["peer"]);
  MONARCH_CHECK(peer.ok());
  if (!introduce_) {
    unanswered_.push_back({process->address, *peer});
    return;
  }
  Process* other = Find(*peer);
  if (other != nullptr && !other->dead && !other->pages.empty()) {
    Pair(process, other);
    return;
  }
  FailureEvent event;
  if (const auto it = dead_.find(*peer); it != dead_.end()) {
    event = it->second;
  } else {
    event.kind = FailureKind::kUnreachable;
    event.reason = "no such process";
  }
  Send(process, ControlType::kUnreachable, 0, {{"peer", ToValue(*peer)}, {"event", ToValue(event)}});
}

void FakeDaemon::Pair(Process* a, Process* b) {
  const auto key = std::minmax(a->address, b->address);
  const std::pair<ProcAddress, ProcAddress> both(key.first, key.second);
  if (std::find(paired_.begin(), paired_.end(), both) != paired_.end()) return;  // Both asked.
  paired_.push_back(both);
  if (options_.relay) {
    Introduce(a, *b, -1, {{"mode", "relay"}});
    Introduce(b, *a, -1, {{"mode", "relay"}});
    return;
  }
  auto ring = CreateSealedMemfd("test-ring", kRingMemfdBytes);
  MONARCH_CHECK(ring.ok());
  const uint32_t bit_a = a->bits++;
  const uint32_t bit_b = b->bits++;
  a->bit_of[b->address] = bit_a;
  b->bit_of[a->address] = bit_b;
  Introduce(a, *b, ring->get(), {{"mode", "ring"}, {"side", 0}, {"peer_bit", bit_b}, {"local_bit", bit_a}});
  Introduce(b, *a, ring->get(), {{"mode", "ring"}, {"side", 1}, {"peer_bit", bit_a}, {"local_bit", bit_b}});
}

void FakeDaemon::Introduce(Process* to, const Process& peer, int ring, const Value::Map& extra) {
  Value::Map body = extra;
  body["peer"] = ToValue(peer.address);
  std::vector<int> fds = {peer.pages[0].get(), peer.pages[1].get(), peer.pages[2].get()};
  FailureEvent who;
  who.host_name = "test-host";
  body["who"] = ToValue(who);
  if (ring >= 0) {
    fds.push_back(ring);
    fds.push_back(board_.fd());
  }
  Send(to, ControlType::kIntroduce, 0, std::move(body), fds);
}

void FakeDaemon::OnFrame(Process* from, const Packet& packet) {
  const auto header = DecodeFrameHeader(AsBytes(packet.bytes), UINT64_MAX);
  MONARCH_CHECK(header.ok() && header->sender.proc == from->address);
  Process* to = Find(header->receiver.proc);
  if (to == nullptr || to->dead) return;
  {
    MutexLock lock(mu_);
    ++relayed_;
  }
  to->waiting.push_back(packet.bytes);
  Forward(to);
}

void FakeDaemon::Forward(Process* to) {
  size_t sent = 0;
  while (sent < to->waiting.size()) {
    const auto done = to->socket.TrySend(to->waiting[sent]);
    if (done.ok() && !*done) break;
    ++sent;
  }
  to->waiting.erase(to->waiting.begin(), to->waiting.begin() + static_cast<ptrdiff_t>(sent));
  static_cast<void>(loop_->UpdateWatch(to->socket.fd(), to->waiting.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT));
  // Not to take in what cannot be passed on.
  for (auto& [fd, process] : processes_) {
    if (process.get() == to || process->dead) continue;
    const bool hold = to->waiting.size() > 64;
    const bool writable = !process->waiting.empty();
    static_cast<void>(loop_->UpdateWatch(fd, (hold ? 0U : EPOLLIN) | (writable ? EPOLLOUT : 0U)));
  }
}

void FakeDaemon::Send(Process* to, ControlType type, uint32_t request, Value::Map body,
                      absl::Span<const int> fds) {
  const std::string bytes = *EncodeControl({type, request, std::move(body)});
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + absl::Seconds(10);
  while (clock.Now() < deadline) {
    const auto sent = to->socket.TrySend(bytes, fds);
    if (!sent.ok() || *sent) return;
    static_cast<void>(WaitWritable(to->socket.fd(), 100));
  }
}

void FakeDaemon::Kill(const ProcAddress& proc, FailureEvent event) {
  event.actor = {proc, 0};
  RunInLoop([&] {
    dead_[proc] = event;
    if (Process* process = Find(proc)) {
      // All that it said before comes first.
      Packet packet;
      for (auto more = process->socket.TryReceive(&packet); more.ok() && *more;
           more = process->socket.TryReceive(&packet)) {
        OnPacket(process, std::move(packet));
      }
      process->dead = true;
    }
    for (auto& [fd, process] : processes_) {
      if (process->dead || process->pages.empty()) continue;
      Send(process.get(), ControlType::kProcDead, 0, {{"peer", ToValue(proc)}, {"event", ToValue(event)}});
    }
  });
}

void FakeDaemon::TellOnBoard(const ProcAddress& proc, int wait_status) {
  RunInLoop([&] {
    if (wait_status >= 0) board_.Write(proc, wait_status);
    for (auto& [fd, process] : processes_) {
      const auto bit = process->bit_of.find(proc);
      if (bit == process->bit_of.end()) continue;
      auto pages = Doorbell::AttachPages(*process->pages[0].Dup());
      MONARCH_CHECK(pages.ok());
      pages->TellPeerDead(bit->second);
    }
  });
}

void FakeDaemon::Detail(const ProcAddress& proc, FailureEvent event) {
  event.actor = {proc, 0};
  RunInLoop([&] {
    for (auto& [fd, process] : processes_) {
      if (process->dead) continue;
      Send(process.get(), ControlType::kProcDetail, 0, {{"peer", ToValue(proc)}, {"event", ToValue(event)}});
    }
  });
}

void FakeDaemon::Stop(const ProcAddress& proc, const std::string& reason, int grace_ms) {
  RunInLoop([&] { Send(Find(proc), ControlType::kStop, 0, {{"reason", reason}, {"grace_ms", grace_ms}}); });
}

void FakeDaemon::Introduce() {
  RunInLoop([&] {
    introduce_ = true;
    for (const auto& [from, to] : std::exchange(unanswered_, {})) {
      OnConnect(Find(from), Value::Map{{"peer", ToValue(to)}});
    }
  });
}

void FakeDaemon::End() {
  RunInLoop([&] {
    for (auto& [fd, process] : processes_) loop_->Unwatch(fd);
    processes_.clear();
  });
}

std::vector<ControlMessage> FakeDaemon::Received(ControlType type) {
  MutexLock lock(mu_);
  std::vector<ControlMessage> out;
  for (const ControlMessage& message : received_) {
    if (message.type == type) out.push_back(message);
  }
  return out;
}

bool FakeDaemon::AwaitReceived(ControlType type, size_t count) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + absl::Seconds(10);
  while (clock.Now() < deadline) {
    if (Received(type).size() >= count) return true;
    RunInLoop([] {});
  }
  return false;
}

uint64_t FakeDaemon::relayed() const {
  MutexLock lock(mu_);
  return relayed_;
}

}  // namespace monarch
