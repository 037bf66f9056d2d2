#include "client/cpp/runtime/handshake.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/scoped_fd.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "message/large_body.h"
#include "message/lifeline.h"
#include "message/utf8.h"

namespace monarch {
namespace {

// Freed blocks that stay backed by memory, so that a steady stream of payloads faults no pages.
constexpr size_t kSegmentCachedBytesMax = 64 << 20;

// Calls `wait` until it says OK or the time is over; signals do not count.
template <typename WaitFn>
absl::Status WaitFor(WaitFn wait, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  while (true) {
    const absl::Duration left = deadline - clock.Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    const absl::Status status = wait(static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (!absl::IsCancelled(status)) return status;
  }
}

absl::StatusOr<ControlMessage> ReceiveControl(PacketSocket* socket, absl::Duration timeout,
                                              std::vector<ScopedFd>* fds = nullptr) {
  MONARCH_ASSIGN_OR_RETURN(Packet packet, ReceivePacket(socket, timeout));
  if (fds != nullptr) *fds = std::move(packet.fds);
  return DecodeControl(packet.bytes);
}

absl::StatusOr<std::string> Text(const Value& body, std::string_view key) {
  auto text = body[key].AsString();
  if (!text.ok())
    return absl::InvalidArgumentError(absl::StrCat(std::string(key), ": ", text.status().message()));
  return text;
}

std::string Own() { return absl::StrCat("this client is ", kVersion, ", protocol ", kProtocolVersion); }

absl::Status Refusal(const ControlMessage& answer) {
  const auto message = answer.body["message"].AsString();
  const auto version = answer.body["version"].AsString();
  return absl::FailedPreconditionError(
      absl::StrCat("monarchd refused: ", message.ok() ? *message : "no reason given",
                   version.ok() ? absl::StrCat(" (monarchd is ", *version, ")") : "", "; ", Own()));
}

absl::Status ReadWelcome(const Value& body, Connection* connection) {
  MONARCH_ASSIGN_OR_RETURN(const Id128 session, Id128FromValue(body["session"]));
  MONARCH_ASSIGN_OR_RETURN(connection->self, ProcAddressFromValue(body["self"]));
  MONARCH_ASSIGN_OR_RETURN(const Id128 control_token, Id128FromValue(body["control_token"]));
  MONARCH_ASSIGN_OR_RETURN(connection->host_name, Text(body, "host_name"));
  if (body["survives"].AsBool().value_or(false)) {
    MONARCH_ASSIGN_OR_RETURN(connection->return_dir, Text(body, "run_dir"));
  }
  connection->session = SessionId(session);
  connection->control_token = StartToken(control_token);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedPages> SharedPages::Create(const Limits& limits) {
  SharedPages pages;
  MONARCH_ASSIGN_OR_RETURN(Doorbell doorbell, Doorbell::Create());
  pages.doorbell = std::make_shared<Doorbell>(std::move(doorbell));
  MONARCH_ASSIGN_OR_RETURN(
      std::unique_ptr<Segment> segment,
      Segment::Create(static_cast<size_t>(limits.segment_bytes_max), kSegmentCachedBytesMax));
  pages.segment = std::move(segment);
  return pages;
}

absl::StatusOr<Packet> ReceivePacket(PacketSocket* socket, absl::Duration timeout) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  Packet packet;
  while (true) {
    MONARCH_ASSIGN_OR_RETURN(const bool received, socket->TryReceive(&packet));
    if (received) return packet;
    MONARCH_RETURN_IF_ERROR(
        WaitFor([&](int ms) { return WaitReadable(socket->fd(), ms); }, deadline - clock.Now()));
  }
}

absl::Status SendPacket(PacketSocket* socket, const ControlMessage& message, absl::Span<const int> fds,
                        absl::Duration timeout) {
  MONARCH_ASSIGN_OR_RETURN(const std::string bytes, EncodeControl(message));
  const SystemClock clock;
  const absl::Duration deadline = clock.Now() + timeout;
  while (true) {
    MONARCH_ASSIGN_OR_RETURN(const bool sent, socket->TrySend(bytes, fds));
    if (sent) return absl::OkStatus();
    MONARCH_RETURN_IF_ERROR(
        WaitFor([&](int ms) { return WaitWritable(socket->fd(), ms); }, deadline - clock.Now()));
  }
}

absl::Status SayHello(const Hello& hello, absl::Duration timeout, Connection* connection) {
  Value::Map body = {{"protocol", kProtocolVersion},
                     {"version", kVersion},
                     {"role", hello.is_client ? "client" : "worker"},
                     {"pid", int64_t{getpid()}}};
  std::vector<int> fds = {connection->pages.doorbell->memfd(), connection->pages.doorbell->bell(),
                          connection->pages.segment->memfd()};
  ScopedFd nowhere;
  if (hello.is_client) {
    body["name"] = ToUtf8(hello.name);
    nowhere.reset(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!nowhere.valid()) return ErrnoStatus("open /dev/null", errno);
    fds.push_back(hello.stdout_fd < 0 ? nowhere.get() : hello.stdout_fd);
    fds.push_back(hello.stderr_fd < 0 ? nowhere.get() : hello.stderr_fd);
    if (hello.output_stream_fd >= 0) fds.push_back(hello.output_stream_fd);
  } else {
    body["token"] = ToValue(hello.token);
  }
  const absl::Status said =
      SendPacket(&connection->daemon, {ControlType::kHello, 1, std::move(body)}, fds, timeout);
  auto answer = said.ok() ? ReceiveControl(&connection->daemon, timeout) : said;
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::UnavailableError(
        absl::StrCat("monarchd did not answer within ", absl::FormatDuration(timeout), "; ", Own()));
  }
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat("monarchd: ", answer.status().message(), "; ", Own()));
  }
  if (answer->type == ControlType::kRefused) return Refusal(*answer);
  if (answer->type != ControlType::kWelcome) {
    return absl::FailedPreconditionError(absl::StrCat("monarchd answered hello with message ",
                                                      static_cast<int>(answer->type),
                                                      ", not with a welcome; ", Own()));
  }
  const absl::Status read = ReadWelcome(answer->body, connection);
  if (read.ok()) return read;
  const auto version = answer->body["version"].AsString();
  return absl::FailedPreconditionError(
      absl::StrCat("monarchd's welcome is not understood: ", read.message(), "; monarchd is ",
                   version.ok() ? *version : "of unknown version", ", ", Own()));
}

absl::StatusOr<StartToken> TakeBoot(absl::Duration timeout, Connection* connection) {
  std::vector<ScopedFd> fds;
  MONARCH_ASSIGN_OR_RETURN(ControlMessage boot, ReceiveControl(&connection->launcher, timeout, &fds));
  if (boot.type != ControlType::kBoot) {
    return absl::InvalidArgumentError(
        absl::StrCat("launcher socket: message ", static_cast<int>(boot.type), " in place of boot"));
  }
  MONARCH_RETURN_IF_ERROR(MoveLargeBodyIn(&boot, &fds));
  MONARCH_ASSIGN_OR_RETURN(const Id128 token, Id128FromValue(boot.body["token"]));
  MONARCH_ASSIGN_OR_RETURN(connection->boot, boot.body["boot"].AsBytes());
  MONARCH_RETURN_IF_ERROR(HoldLifeline(connection->pages.doorbell->lifeline_page()));
  const int memfd = connection->pages.doorbell->memfd();
  MONARCH_RETURN_IF_ERROR(
      SendPacket(&connection->launcher, {ControlType::kLifeline, 1, Value::Map{}}, {&memfd, 1}, timeout));
  MONARCH_ASSIGN_OR_RETURN(const ControlMessage answer, ReceiveControl(&connection->launcher, timeout));
  if (answer.type != ControlType::kOk) {
    const auto why = answer.body["message"].AsString();
    return absl::UnavailableError(
        absl::StrCat("launcher refused the life-line: ", why.ok() ? *why : "no reason"));
  }
  return StartToken(token);
}

}  // namespace monarch
