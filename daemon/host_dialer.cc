#include "daemon/host_dialer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"
#include "daemon/peer_listener.h"

namespace monarch {
namespace {

constexpr absl::Duration kRetryAfter = absl::Milliseconds(50);

// Worth another try: the daemon may be about to start.
bool IsAbsent(int error) {
  return error == ECONNREFUSED || error == ENOENT || error == EAGAIN || error == ECONNRESET;
}

// Threading: as HostDialer.
class Dialer final : public HostDialer {
 public:
  Dialer(EventLoop* loop, const HostAddress& address, ControlMessage hello, absl::Duration timeout, Done done)
      : loop_(loop),
        address_(address),
        hello_(EncodeControl(hello)),
        deadline_(loop->Now() + timeout),
        timeout_(timeout),
        done_(std::move(done)) {
    timer_ = loop_->RunAfter(absl::ZeroDuration(), [this] { Try(); });
  }
  ~Dialer() override { Reset(); }
  void Cancel() override { Reset(); }

 private:
  void Reset() {
    if (timer_ != 0) loop_->Cancel(timer_);
    timer_ = 0;
    if (stream_) loop_->Unwatch(stream_->fd());
    stream_ = nullptr;
  }

  // The owner may drop this in `done_`: nothing of it is touched afterwards.
  void Finish(const absl::Status& status, DialedHost host = {}) {
    Reset();
    Done done = std::move(done_);
    done(status, std::move(host));
  }

  void Absent(int error) {
    Reset();
    const absl::Duration left = deadline_ - loop_->Now();
    if (left <= absl::ZeroDuration()) {
      return Finish(absl::UnavailableError(
          absl::StrCat("attach host ", address_.text, ": nobody answers there within ",
                       absl::ToInt64Milliseconds(timeout_), " ms (", ErrnoStatus("connect", error).message(),
                       "); is its worker loop running?")));
    }
    timer_ = loop_->RunAfter(std::min(kRetryAfter, left), [this] { Try(); });
  }

  void Fail(const std::string& operation, int error) {
    const absl::Status status =
        ErrnoStatus(absl::StrCat("attach host ", address_.text, ": ", operation), error);
    Finish(error == EACCES || error == EPERM ? status : absl::UnavailableError(status.message()));
  }

  void Try() {
    timer_ = 0;
    const absl::StatusOr<HostAddress::Socket> target = address_.ToSocket();
    if (!target.ok()) return Finish(target.status());
    ScopedFd fd(socket(target->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return Fail("socket", errno);
    if (connect(fd.get(), target->get(), target->size) != 0 && errno != EINPROGRESS) {
      return IsAbsent(errno) ? Absent(errno) : Fail("connect", errno);
    }
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    stream_ = std::make_unique<PacketStream>(std::move(fd));
    timer_ = loop_->RunAfter(std::max(deadline_ - loop_->Now(), kRetryAfter), [this] {
      timer_ = 0;
      Absent(ETIMEDOUT);
    });
    const absl::Status watched = loop_->WatchFd(stream_->fd(), EPOLLOUT, [this](uint32_t) { OnConnected(); });
    if (!watched.ok()) Finish(watched);
  }

  void OnConnected() {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(stream_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return IsAbsent(error) ? Absent(error) : Fail("connect", error);
    // What is sent to it, environments for instance, is for this user's eyes.
    const absl::StatusOr<uid_t> uid = UserAtOtherEnd(stream_->fd());
    if (!uid.ok()) return Absent(ECONNRESET);
    if (*uid != geteuid() && *uid != 0) {
      return Finish(absl::PermissionDeniedError(
          absl::StrCat("attach host ", address_.text, ": the daemon there is another user's")));
    }
    // A hello fits any fresh socket's buffer.
    if (!hello_.ok()) return Finish(hello_.status());
    const absl::StatusOr<bool> sent = stream_->TrySend(*hello_, {});
    if (!sent.ok() || !*sent) return Absent(ECONNRESET);
    loop_->Unwatch(stream_->fd());
    const absl::Status watched = loop_->WatchFd(stream_->fd(), EPOLLIN, [this](uint32_t) { OnAnswer(); });
    if (!watched.ok()) Finish(watched);
  }

  void OnAnswer() {
    Packet packet;
    const absl::StatusOr<bool> got = stream_->TryReceive(&packet);
    if (got.ok() && !*got) return;
    if (!got.ok()) return Absent(ECONNRESET);
    absl::StatusOr<ControlMessage> answer = DecodeControl(packet.bytes);
    if (!answer.ok()) return Finish(answer.status());
    if (answer->type == ControlType::kRefused) {
      const int64_t code = answer->body["code"].AsInt().value_or(0);
      return Finish(absl::Status(
          code > 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
          absl::StrCat("attach host ", address_.text, ": ",
                       answer->body["message"].AsString().value_or(""))));
    }
    if (answer->type != ControlType::kPeerWelcome)
      return Finish(
          absl::InvalidArgumentError(absl::StrCat("attach host ", address_.text, ": no daemon's answer")));
    loop_->Unwatch(stream_->fd());
    DialedHost host;
    host.stream = std::move(stream_);
    host.welcome = std::move(answer->body);
    Finish(absl::OkStatus(), std::move(host));
  }

  EventLoop* const loop_;
  const HostAddress address_;
  const absl::StatusOr<std::string> hello_;
  const absl::Duration deadline_;
  const absl::Duration timeout_;
  Done done_;
  std::unique_ptr<PacketStream> stream_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace

std::unique_ptr<HostDialer> DialHost(EventLoop* loop, const HostAddress& address, ControlMessage hello,
                                     absl::Duration timeout, HostDialer::Done done) {
  return std::make_unique<Dialer>(loop, address, std::move(hello), timeout, std::move(done));
}

}  // namespace monarch
