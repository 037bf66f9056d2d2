#include "message/large_body.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "message/memfd.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

ControlMessage Message(size_t bytes) {
  return {ControlType::kBoot, 3, Value::Map{{"boot", Value::Bytes{std::string(bytes, '\xff')}}}};
}

absl::Status TakeIn(Value body, ScopedFd fd) {
  ControlMessage message{ControlType::kBoot, 0, std::move(body)};
  std::vector<ScopedFd> fds;
  if (fd.valid()) fds.push_back(std::move(fd));
  return MoveLargeBodyIn(&message, &fds);
}

TEST_CASE("ASmallBodyStaysWhereItIs") {
  ControlMessage message = Message(100);
  const absl::StatusOr<ScopedFd> fd = MoveLargeBodyOut(&message);
  REQUIRE(fd.ok());
  CHECK_FALSE(fd->valid());
  CHECK(message.body == Message(100).body);
  std::vector<ScopedFd> fds(1);
  REQUIRE(MoveLargeBodyIn(&message, &fds).ok());
  CHECK(message.body == Message(100).body);
  CHECK(fds.size() == 1);
}

TEST_CASE("ALargeBodyTravelsInTheLastFd") {
  // The first that does not fit, and the last that may be sent.
  const size_t around = EncodeValue(Message(0).body)->size();
  for (const size_t bytes : {PacketSocket::kPacketBytesMax, kLargeBodyBytesMax - around}) {
    ControlMessage message = Message(bytes);
    absl::StatusOr<ScopedFd> fd = MoveLargeBodyOut(&message);
    REQUIRE(fd.ok());
    REQUIRE(fd->valid());
    CHECK(EncodeControl(message)->size() < 100);
    std::vector<ScopedFd> fds(1);
    fds.push_back(*std::move(fd));
    REQUIRE(MoveLargeBodyIn(&message, &fds).ok());
    CHECK(message.body == Message(bytes).body);
    CHECK(message.request == 3);
    CHECK(fds.size() == 1);
  }
}

TEST_CASE("TheLimitIsNamed") {
  ControlMessage message = Message(kLargeBodyBytesMax);
  const absl::Status status = MoveLargeBodyOut(&message).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(std::string(status.message()).find("large_body_bytes_max=4194304") != std::string::npos);
  CHECK(message.body == Message(kLargeBodyBytesMax).body);
}

TEST_CASE("RefusesAMemfdThatIsNotAsAnnounced") {
  const auto memfd = [](const std::string& text) {
    ScopedFd fd = CreateSealedMemfd("test", text.size()).value();
    REQUIRE(pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    return fd;
  };
  const std::string map = *EncodeValue(Value::Map{{"a", 1}});
  const auto size = static_cast<int64_t>(map.size());
  CHECK(TakeIn(Value::Map{{"body_bytes", size}}, memfd(map)).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", size + 1}}, memfd(map)).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", size}}, ScopedFd()).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", size}}, memfd(std::string(map.size(), 'x'))).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", 1}}, memfd(std::string(1, '\0'))).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", -1}}, memfd(map)).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", int64_t{1} << 40}}, memfd(map)).ok());
  CHECK_FALSE(TakeIn(Value::Map{{"body_bytes", "x"}}, memfd(map)).ok());
  ScopedFd unsealed(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(pwrite(unsealed.get(), map.data(), map.size(), 0) == static_cast<ssize_t>(map.size()));
  CHECK(absl::IsFailedPrecondition(TakeIn(Value::Map{{"body_bytes", size}}, std::move(unsealed))));
}

}  // namespace
}  // namespace monarch
