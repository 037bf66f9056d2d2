#include "daemon/native_connection.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

// Packets of one peer handled in a turn of the loop, so that a flooding peer does not starve the others.
constexpr size_t kPacketsPerTurnMax = 64;
// The kernel takes no more fds of this user while so many are under way. That is not this socket's fault,
// passes, and no event tells when.
constexpr absl::Duration kFdsRetryDelay = absl::Milliseconds(10);
// What a dead peer can have left behind: more than any socket's buffer holds.
constexpr size_t kDrainPacketsMax = 4096;

// Threading: as PacketChannel.
class SocketChannel final : public PacketChannel {
 public:
  explicit SocketChannel(PacketSocket socket) : socket_(std::move(socket)) {}
  absl::StatusOr<bool> TrySend(std::string_view bytes, absl::Span<const int> fds) override {
    return socket_.TrySend(bytes, fds);
  }
  absl::StatusOr<bool> TryReceive(Packet* packet) override { return socket_.TryReceive(packet); }
  int fd() const override { return socket_.fd(); }

 private:
  PacketSocket socket_;
};

}  // namespace

std::shared_ptr<NativeConnection> NativeConnection::Start(EventLoop* loop, PacketSocket socket,
                                                          Handler* handler, const Limits& limits) {
  return Start(loop, std::make_unique<SocketChannel>(std::move(socket)), handler, limits);
}

std::shared_ptr<NativeConnection> NativeConnection::Start(EventLoop* loop,
                                                          std::unique_ptr<PacketChannel> channel,
                                                          Handler* handler, const Limits& limits) {
  std::shared_ptr<NativeConnection> connection(
      new NativeConnection(loop, std::move(channel), handler, limits));
  const absl::Status watched = loop->WatchFd(connection->channel_->fd(), EPOLLIN,
                                             [connection](uint32_t events) { connection->OnReady(events); });
  if (!watched.ok()) connection->FailLater(watched);
  return connection;
}

void NativeConnection::OnReady(uint32_t events) {
  const std::shared_ptr<NativeConnection> self = shared_from_this();
  if ((events & EPOLLOUT) != 0) Flush();
  if (!closed_ && (events & ~EPOLLOUT) != 0) Receive(kPacketsPerTurnMax);
}

void NativeConnection::Receive(size_t packets_max) {
  for (size_t i = 0; i < packets_max && !closed_; ++i) {
    Packet packet;
    const absl::StatusOr<bool> got = channel_->TryReceive(&packet);
    if (!got.ok()) return Fail(got.status());
    if (!*got) return;
    const absl::Status handled = handler_->OnPacket(*this, std::move(packet));
    if (!handled.ok()) return Fail(handled);
  }
}

void NativeConnection::DrainNow() {
  const std::shared_ptr<NativeConnection> self = shared_from_this();
  Receive(kDrainPacketsMax);
}

absl::Status NativeConnection::TrySend(const ControlMessage& message, absl::Span<const int> fds) {
  MONARCH_ASSIGN_OR_RETURN(std::string bytes, EncodeControl(message));
  if (bytes.size() > PacketSocket::kPacketBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("send message: ", bytes.size(), " bytes, at most ", PacketSocket::kPacketBytesMax));
  }
  if (closed_ || failing_) return absl::OkStatus();
  if (queue_.empty()) {
    const absl::StatusOr<bool> sent = Give(bytes, fds);
    if (!sent.ok() && !absl::IsResourceExhausted(sent.status())) {
      // The peer's end is told by the reading side, after what it had sent.
      if (!absl::IsUnavailable(sent.status())) FailLater(sent.status());
      return absl::OkStatus();
    }
    if (sent.ok() && *sent) return absl::OkStatus();
  }
  if (control_bytes_ + bytes.size() > limits_.control_bytes_max) {
    FailLater(absl::ResourceExhaustedError(
        absl::StrCat("send message: control_queue_bytes_max=", limits_.control_bytes_max,
                     " reached, the peer does not read")));
    return absl::OkStatus();
  }
  const size_t counted = bytes.size();
  Enqueue({std::move(bytes), {}, false, counted}, fds);
  return absl::OkStatus();
}

void NativeConnection::Send(const ControlMessage& message, absl::Span<const int> fds) {
  const absl::Status sent = TrySend(message, fds);
  if (!sent.ok()) LogError("daemon", "message dropped").With("error", sent.ToString());
}

void NativeConnection::Answer(uint32_t request, ControlType type, Value::Map body,
                              absl::Span<const int> fds) {
  Send(ControlMessage{type, request, Value(std::move(body))}, fds);
}

void NativeConnection::Refuse(uint32_t request, const absl::Status& status) {
  Answer(request, ControlType::kRefused,
         {{"code", Value(status.raw_code())}, {"message", Value(std::string(status.message()))}});
}

absl::Status NativeConnection::SendFrame(std::string packet, ScopedFd payload, size_t payload_bytes) {
  if (closed_ || failing_) return absl::UnavailableError("relay frame: the receiver's connection is closed");
  if (queue_.empty()) {
    const int fd = payload.get();
    const absl::StatusOr<bool> sent = Give(packet, absl::MakeConstSpan(&fd, payload.valid() ? 1 : 0));
    if (!sent.ok() && !absl::IsResourceExhausted(sent.status())) return sent.status();
    if (sent.ok() && *sent) return absl::OkStatus();
  }
  if (frame_bytes_ + packet.size() > limits_.frame_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("relay frame: ", limits_.frame_limit, "=",
                                                     limits_.frame_bytes_max,
                                                     " reached, the receiver does not read"));
  }
  Queued queued{std::move(packet), {}, true, 0};
  queued.counted = queued.bytes.size() + payload_bytes;
  if (payload.valid()) queued.fds.push_back(std::move(payload));
  Enqueue(std::move(queued), {});
  return absl::OkStatus();
}

absl::StatusOr<bool> NativeConnection::Give(std::string_view bytes, absl::Span<const int> fds) {
  const absl::StatusOr<bool> sent = channel_->TrySend(bytes, fds);
  if (!sent.ok() || !*sent || unsent_) return sent;
  const absl::StatusOr<bool> flushed = channel_->Flush();
  if (flushed.ok() && !*flushed) {
    unsent_ = true;
    UpdateWatch();
  }
  return sent;
}

void NativeConnection::Enqueue(Queued queued, absl::Span<const int> fds) {
  for (const int fd : fds) {
    ScopedFd borrowed(fd);
    absl::StatusOr<ScopedFd> dup = borrowed.Dup();
    borrowed.release();
    if (!dup.ok()) return FailLater(dup.status());
    queued.fds.push_back(*std::move(dup));
  }
  (queued.is_frame ? frame_bytes_ : control_bytes_) += queued.counted;
  queue_.push_back(std::move(queued));
  if (queue_.size() == 1) UpdateWatch();
}

void NativeConnection::Flush() {
  const size_t frame_bytes_before = frame_bytes_;
  // What the channel still owes goes with its next packet, and is told of as that.
  const absl::StatusOr<bool> flushed = channel_->Flush();
  unsent_ = flushed.ok() && !*flushed;
  while (!queue_.empty() && !unsent_) {
    const Queued& front = queue_.front();
    std::vector<int> fds;
    for (const ScopedFd& fd : front.fds) fds.push_back(fd.get());
    const absl::StatusOr<bool> sent = Give(front.bytes, fds);
    if (sent.ok() && !*sent) break;
    if (absl::IsResourceExhausted(sent.status())) {
      RetryLater();
      break;
    }
    if (!sent.ok()) {
      queue_.clear();
      control_bytes_ = frame_bytes_ = 0;
      if (!absl::IsUnavailable(sent.status())) return Fail(sent.status());
      break;
    }
    (front.is_frame ? frame_bytes_ : control_bytes_) -= front.counted;
    queue_.pop_front();
  }
  UpdateWatch();
  if (frame_bytes_ < frame_bytes_before) handler_->OnFramesSent(*this);
}

void NativeConnection::RetryLater() {
  if (retry_timer_ != 0) return;
  retry_timer_ = loop_->RunAfter(kFdsRetryDelay, [self = shared_from_this()] {
    self->retry_timer_ = 0;
    if (!self->closed_) self->Flush();
  });
}

void NativeConnection::UpdateWatch() {
  if (closed_) return;
  const bool wants_room = (!queue_.empty() && retry_timer_ == 0) || unsent_;
  const absl::Status updated =
      loop_->UpdateWatch(channel_->fd(), EPOLLIN | (wants_room ? uint32_t{EPOLLOUT} : 0u));
  if (!updated.ok()) FailLater(updated);
}

void NativeConnection::FailLater(absl::Status why) {
  if (closed_ || failing_) return;
  failing_ = true;
  loop_->Post([self = shared_from_this(), why = std::move(why)] { self->Fail(why); });
}

void NativeConnection::Fail(const absl::Status& why) {
  if (closed_) return;
  Close();
  handler_->OnClosed(*this, why);
}

void NativeConnection::Close() {
  if (closed_) return;
  closed_ = true;
  const std::shared_ptr<NativeConnection> self = shared_from_this();
  loop_->Unwatch(channel_->fd());
  if (retry_timer_ != 0) loop_->Cancel(retry_timer_);
  queue_.clear();
  channel_ = nullptr;
}

}  // namespace monarch
