#include "client/cpp/runtime/daemon_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace monarch {

absl::Status DaemonLink::Enqueue(std::string bytes, absl::Span<const int> fds) {
  if (queue_bytes_ + bytes.size() > queue_bytes_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("native socket: control_queue_bytes_max=", queue_bytes_max_, " is reached"));
  }
  Queued queued;
  for (const int fd : fds) {
    // The original is the caller's; a number is all that we have of it.
    ScopedFd borrowed(fd);
    auto copy = borrowed.Dup();
    static_cast<void>(borrowed.release());
    if (!copy.ok()) return copy.status();
    queued.fds.push_back(*std::move(copy));
  }
  queue_bytes_ += bytes.size();
  queued.bytes = std::move(bytes);
  queue_.push_back(std::move(queued));
  return absl::OkStatus();
}

absl::Status DaemonLink::Send(const ControlMessage& message, absl::Span<const int> fds) {
  MONARCH_ASSIGN_OR_RETURN(std::string bytes, EncodeControl(message));
  {
    MutexLock lock(mu_);
    MONARCH_RETURN_IF_ERROR(failed_);
    if (queue_.empty() && !away_) {
      MONARCH_ASSIGN_OR_RETURN(const bool sent, socket_.TrySend(bytes, fds));
      if (sent) return absl::OkStatus();
    }
    MONARCH_RETURN_IF_ERROR(Enqueue(std::move(bytes), fds));
  }
  want_write_();
  return absl::OkStatus();
}

absl::StatusOr<SendResult> DaemonLink::TrySendFrame(const FrameHeader& header,
                                                    absl::Span<const uint8_t> payload) {
  uint8_t head[kFrameHeaderBytes];
  EncodeFrameHeader(header, absl::MakeSpan(head));
  {
    MutexLock lock(mu_);
    MONARCH_RETURN_IF_ERROR(failed_);
    if (queue_.empty() && !away_) {
      MONARCH_ASSIGN_OR_RETURN(
          const bool sent,
          socket_.TrySend({reinterpret_cast<const char*>(head), sizeof(head)},
                          {reinterpret_cast<const char*>(payload.data()), payload.size()}, {}));
      if (sent) return SendResult::kSent;
    }
  }
  want_write_();
  return SendResult::kFull;
}

uint32_t DaemonLink::NextRequest() {
  MutexLock lock(mu_);
  do {
    ++last_request_;
  } while (last_request_ == 0 || requests_.contains(last_request_));
  requests_[last_request_];
  return last_request_;
}

bool DaemonLink::HasAnswer(uint32_t request) const {
  MutexLock lock(mu_);
  const auto it = requests_.find(request);
  return !failed_.ok() || it == requests_.end() || it->second.done;
}

absl::StatusOr<ControlMessage> DaemonLink::TakeAnswer(uint32_t request) {
  MutexLock lock(mu_);
  auto node = requests_.extract(request);
  if (!node.empty() && node.mapped().done) return std::move(node.mapped().answer);
  MONARCH_RETURN_IF_ERROR(failed_);
  return absl::DeadlineExceededError("monarchd did not answer in time");
}

bool DaemonLink::Answered(ControlMessage message) {
  MutexLock lock(mu_);
  const auto it = requests_.find(message.request);
  if (it == requests_.end()) return false;
  it->second.done = true;
  it->second.answer = std::move(message);
  return true;
}

void DaemonLink::Detach() {
  MutexLock lock(mu_);
  away_ = true;
  socket_ = PacketSocket();
  for (auto& [number, request] : requests_) {
    if (request.done) continue;
    request.done = true;
    request.answer = {ControlType::kRefused, number,
                      Value::Map{{"code", static_cast<int>(absl::StatusCode::kUnavailable)},
                                 {"message", "monarchd ended before it answered"}}};
  }
}

void DaemonLink::Attach(PacketSocket socket) {
  MutexLock lock(mu_);
  socket_ = std::move(socket);
  away_ = false;
}

std::string DaemonLink::failure() const {
  MutexLock lock(mu_);
  return std::string(failed_.message());
}

void DaemonLink::Fail(absl::Status reason) {
  MutexLock lock(mu_);
  if (failed_.ok()) failed_ = std::move(reason);
  queue_.clear();
}

void DaemonLink::Close() {
  Fail(absl::UnavailableError("the runtime has ended"));
  MutexLock lock(mu_);
  socket_.ReleaseFd().reset();
}

bool DaemonLink::Flush() {
  MutexLock lock(mu_);
  if (away_) return true;
  while (!queue_.empty()) {
    Queued& next = queue_.front();
    std::vector<int> fds;
    for (const ScopedFd& fd : next.fds) fds.push_back(fd.get());
    auto sent = socket_.TrySend(next.bytes, fds);
    // An error sticks in the socket; the end is seen by who receives.
    if (sent.ok() && !*sent) return false;
    queue_bytes_ -= next.bytes.size();
    queue_.pop_front();
  }
  return true;
}

}  // namespace monarch
