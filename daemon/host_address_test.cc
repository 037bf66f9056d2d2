#include "daemon/host_address.h"

#include <sys/un.h>

#include <catch2/catch.hpp>

namespace monarch {
namespace {

using Kind = HostAddress::Kind;
constexpr auto kBind = HostAddress::Side::kBind;
constexpr auto kDial = HostAddress::Side::kDial;

TEST_CASE("EachFormHasItsKind") {
  const struct {
    const char* text;
    Kind kind;
    const char* name;
  } forms[] = {
      {"ipc:///tmp/a.sock", Kind::kPath, "/tmp/a.sock"},
      {"unix:/tmp/a.sock", Kind::kPath, "/tmp/a.sock"},
      {"unix!a.sock", Kind::kPath, "a.sock"},
      {"ipc://worker-1", Kind::kAbstract, "worker-1"},
      {"ipc://@worker-1", Kind::kAbstract, "worker-1"},
      {"unix:@worker-1", Kind::kAbstract, "worker-1"},
      {"tcp://127.0.0.1:70", Kind::kTcp, "127.0.0.1"},
      {"tcp!localhost:70", Kind::kTcp, "127.0.0.1"},
      {"tcp://[::1]:70", Kind::kTcp, "::1"},
  };
  for (const auto& form : forms) {
    INFO(form.text);
    const auto parsed = HostAddress::Parse(form.text, kDial);
    REQUIRE(parsed.ok());
    CHECK(parsed->kind == form.kind);
    CHECK(parsed->name == form.name);
    CHECK(parsed->text == form.text);
    CHECK(parsed->ToSocket().ok());
  }
}

TEST_CASE("AnInheritedSocketCanOnlyBeListenedOn") {
  const auto parsed = HostAddress::Parse("tcp://0.0.0.0:fd7", kBind);
  REQUIRE(parsed.ok());
  CHECK(parsed->kind == Kind::kListeningFd);
  CHECK(parsed->fd == 7);
  CHECK(absl::IsInvalidArgument(HostAddress::Parse("tcp://0.0.0.0:fd7", kDial).status()));
}

TEST_CASE("TcpBeyondLoopbackIsRefusedWithTheReason") {
  for (const char* text :
       {"tcp://10.1.2.3:70", "tcp://0.0.0.0:70", "tcp://elsewhere.example:70", "tcp://*:70"}) {
    const absl::Status status = HostAddress::Parse(text, kBind).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(std::string(status.message()).find("mutual TLS") != std::string::npos);
  }
}

TEST_CASE("OfTwoAddressesOneIsDialedAndOneIsBound") {
  const char* text = "tcp://localhost:71@tcp://127.0.0.2:72";
  CHECK(HostAddress::Parse(text, kDial)->port == 71);
  CHECK(HostAddress::Parse(text, kBind)->port == 72);
  CHECK(HostAddress::Parse(text, kBind)->name == "127.0.0.2");
}

TEST_CASE("AServiceBeforeTheAddressIsIgnored") {
  CHECK(HostAddress::Parse("service3xYz@tcp://127.0.0.1:72", kDial)->port == 72);
  CHECK(HostAddress::Parse("service3xYz@ipc://@w", kBind)->name == "w");
}

TEST_CASE("NonsenseIsRefused") {
  for (const char* text : {"", "worker", "tls://127.0.0.1:70", "tcp://127.0.0.1", "tcp://127.0.0.1:70000",
                           "tcp://127.0.0.1:fdx", "ipc://", "ipc://@", "tcp://127.0.0.1:-1"}) {
    INFO(text);
    CHECK(absl::IsInvalidArgument(HostAddress::Parse(text, kBind).status()));
  }
  CHECK(absl::IsInvalidArgument(HostAddress::Parse("ipc:///" + std::string(200, 'x'), kBind).status()));
}

TEST_CASE("AnAbstractNameHasNoZeroAtItsEnd") {
  const auto socket = HostAddress::Parse("ipc://@ab", kBind)->ToSocket();
  const auto* address = reinterpret_cast<const sockaddr_un*>(socket->get());
  CHECK(address->sun_path[0] == '\0');
  CHECK(std::string(address->sun_path + 1, 2) == "ab");
  CHECK(socket->size == offsetof(sockaddr_un, sun_path) + 3);
}

}  // namespace
}  // namespace monarch
