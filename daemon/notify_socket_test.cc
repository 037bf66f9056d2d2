#include "daemon/notify_socket.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "base/ids.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

ScopedFd Listen(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  ScopedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  return fd;
}

std::string Received(const ScopedFd& fd) {
  char buffer[64];
  const ssize_t got = recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  return got < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(got));
}

TEST_CASE("TellsOverAPathAndOverAnAbstractName") {
  const std::string name = Id128::Random().ToHex();
  const std::string path = "/tmp/monarch-notify-" + name;
  for (const std::string& socket : {path, "@monarch-notify-" + name}) {
    const ScopedFd listener = Listen(socket);
    CHECK(NotifySupervisor(socket, "READY=1").ok());
    CHECK(Received(listener) == "READY=1");
  }
  unlink(path.c_str());
}

TEST_CASE("NobodyAskedAndNobodyListens") {
  CHECK(NotifySupervisor("", "READY=1").ok());
  CHECK(absl::IsNotFound(NotifySupervisor("/tmp/no-such-socket", "READY=1")));
  CHECK_FALSE(NotifySupervisor(std::string(200, 'x'), "READY=1").ok());
}

}  // namespace
}  // namespace monarch
