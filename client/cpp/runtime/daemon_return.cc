#include "client/cpp/runtime/daemon_return.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "client/cpp/runtime/handshake.h"
#include "message/control_message.h"

namespace monarch {
namespace {

constexpr absl::Duration kFirstDelay = absl::Milliseconds(20);
constexpr absl::Duration kDelayMax = absl::Seconds(2);
constexpr int kDoublingsMax = 10;
// A daemon that has taken the connection and says nothing: another try, for the listener may be a dying
// one's.
constexpr absl::Duration kAnswerMax = absl::Seconds(10);

}  // namespace

absl::Duration ReturnDelay(int attempt, uint64_t random) {
  const absl::Duration full =
      std::min(kDelayMax, kFirstDelay * (int64_t{1} << std::min(attempt, kDoublingsMax)));
  return full / 2 + full / 2 * (static_cast<double>(random % 1024) / 1024);
}

void DaemonReturn::Begin() {
  attempt_ = 0;
  deadline_ = loop_->Now() + options_.absence_max;
  loop_->RunAfter(ReturnDelay(attempt_, Id128::Random().low), [this] { Try(); });
}

void DaemonReturn::Try() {
  const absl::Status connected = Connect();
  if (!connected.ok()) TryAgain(connected);
}

void DaemonReturn::TryAgain(const absl::Status& why) {
  if (loop_->Now() >= deadline_) return lost_(absl::StrCat("no monarchd came back: ", why.ToString()));
  ++attempt_;
  loop_->RunAfter(ReturnDelay(attempt_, Id128::Random().low), [this] { Try(); });
}

absl::Status DaemonReturn::Connect() {
  MONARCH_ASSIGN_OR_RETURN(PacketSocket socket, PacketSocket::Connect(options_.run_dir + "/native.sock"));
  MONARCH_ASSIGN_OR_RETURN(const std::string hello,
                           EncodeControl({ControlType::kHello, 1,
                                          Value::Map{{"protocol", kProtocolVersion},
                                                     {"version", kVersion},
                                                     {"role", "returned"},
                                                     {"pid", int64_t{getpid()}},
                                                     {"session", ToValue(options_.session)},
                                                     {"self", ToValue(options_.self)},
                                                     {"token", ToValue(options_.token)}}}));
  MONARCH_RETURN_IF_ERROR(socket.TrySend(hello).status());
  socket_ = std::move(socket);
  MONARCH_RETURN_IF_ERROR(loop_->WatchFd(socket_.fd(), EPOLLIN, [this](uint32_t) { OnAnswer(); }));
  answer_timer_ = loop_->RunAfter(kAnswerMax, [this] {
    loop_->Unwatch(socket_.fd());
    socket_ = PacketSocket();
    TryAgain(absl::DeadlineExceededError("it does not answer"));
  });
  return absl::OkStatus();
}

void DaemonReturn::OnAnswer() {
  Packet packet;
  const absl::StatusOr<bool> received = socket_.TryReceive(&packet);
  if (received.ok() && !*received) return;
  loop_->Cancel(answer_timer_);
  loop_->Unwatch(socket_.fd());
  PacketSocket socket = std::exchange(socket_, PacketSocket());
  if (!received.ok()) return TryAgain(received.status());
  const absl::StatusOr<ControlMessage> answer = DecodeControl(packet.bytes);
  if (!answer.ok()) return lost_(answer.status().ToString());
  if (answer->type == ControlType::kWelcome) {
    return returned_(std::move(socket));
  }
  const int64_t code = answer->body["code"].AsInt().value_or(0);
  const std::string text = answer->body["message"].AsString().value_or("no reason given");
  if (code == static_cast<int64_t>(absl::StatusCode::kUnavailable))
    return TryAgain(absl::UnavailableError(text));
  lost_(absl::StrCat("monarchd has restarted, and refused: ", text));
}

}  // namespace monarch
