#include "daemon/launcher/control_channel.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

// Bytes that wait for a peer that does not read. Too small loses a healthy but busy peer during a burst of
// deaths (an exit message is at most a packet).
constexpr size_t kQueuedBytesMax = 64 * 1024 * 1024;
// The kernel takes no more fds of this user while so many are under way. That passes, and no event tells
// when.
constexpr absl::Duration kFdsRetryDelay = absl::Milliseconds(10);
// Packets taken in one turn, so that one peer cannot keep the loop.
constexpr int kPacketsPerTurnMax = 32;

}  // namespace

ControlChannel::ControlChannel(EventLoop* loop, PacketSocket socket, MessageCallback message,
                               ClosedCallback closed)
    : loop_(loop),
      socket_(std::move(socket)),
      message_(std::make_shared<MessageCallback>(std::move(message))),
      closed_(std::move(closed)) {
  const absl::Status watched =
      loop_->WatchFd(socket_.fd(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
  if (!watched.ok()) CloseWith(watched);
}

ControlChannel::~ControlChannel() {
  *alive_ = false;
  Shut();
}

void ControlChannel::Shut() {
  if (!open_) return;
  open_ = false;
  queue_.clear();
  loop_->Unwatch(socket_.fd());
  socket_ = PacketSocket();
}

void ControlChannel::CloseWith(absl::Status reason) {
  if (!open_) return;
  Shut();
  // Posted: the caller may be in the middle of its own work.
  loop_->Post([this, alive = alive_, reason = std::move(reason)]() mutable {
    if (!*alive) return;
    ClosedCallback closed = std::move(closed_);
    closed(std::move(reason));
  });
}

void ControlChannel::Send(const ControlMessage& message, std::vector<ScopedFd> fds) {
  if (!open_) return;
  absl::StatusOr<std::string> packet = EncodeControl(message);
  if (!packet.ok()) return CloseWith(packet.status());
  if (packet->size() > PacketSocket::kPacketBytesMax) {
    return CloseWith(
        absl::InternalError(absl::StrCat("control message too large: ", packet->size(), " bytes")));
  }
  queued_bytes_ += packet->size();
  queue_.push_back({*std::move(packet), std::move(fds)});
  SendQueued();
  if (open_ && queued_bytes_ > kQueuedBytesMax) {
    CloseWith(
        absl::ResourceExhaustedError(absl::StrCat("peer does not read, ", queued_bytes_, " bytes wait")));
  }
}

void ControlChannel::SendQueued() {
  while (!queue_.empty()) {
    std::vector<int> fds;
    for (const ScopedFd& fd : queue_.front().fds) fds.push_back(fd.get());
    const absl::StatusOr<bool> sent = socket_.TrySend(queue_.front().packet, fds);
    if (absl::IsResourceExhausted(sent.status())) {
      RetryLater();
      break;
    }
    if (!sent.ok()) {
      // What the peer sent before it closed is still to be read; reading then ends with its own error.
      queue_.clear();
      queued_bytes_ = 0;
      break;
    }
    if (!*sent) break;
    queued_bytes_ -= queue_.front().packet.size();
    queue_.pop_front();
  }
  const bool wants_room = !queue_.empty() && !retry_armed_;
  if (open_) loop_->UpdateWatch(socket_.fd(), wants_room ? EPOLLIN | EPOLLOUT : EPOLLIN).IgnoreError();
}

void ControlChannel::RetryLater() {
  if (retry_armed_) return;
  retry_armed_ = true;
  loop_->RunAfter(kFdsRetryDelay, [this, alive = alive_] {
    if (!*alive) return;
    retry_armed_ = false;
    if (open_) SendQueued();
  });
}

void ControlChannel::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) SendQueued();
  if ((events & ~uint32_t{EPOLLOUT}) != 0) ReceiveSome();
}

void ControlChannel::ReceiveSome() {
  const std::shared_ptr<bool> alive = alive_;
  const std::shared_ptr<MessageCallback> deliver = message_;
  for (int i = 0; i < kPacketsPerTurnMax; ++i) {
    Packet packet;
    const absl::StatusOr<bool> received = socket_.TryReceive(&packet);
    if (!received.ok()) return CloseWith(received.status());
    if (!*received) return;
    absl::StatusOr<ControlMessage> message = DecodeControl(packet.bytes);
    if (!message.ok()) return CloseWith(message.status());
    (*deliver)(*std::move(message), std::move(packet.fds));
    if (!*alive || !open_) return;
  }
}

}  // namespace monarch
