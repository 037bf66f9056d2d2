#include "daemon/control_connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/scoped_fd.h"

namespace monarch {
namespace {

struct Ends {
  ScopedFd a;
  ScopedFd b;
};

Ends SocketPair() {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  return {ScopedFd(fds[0]), ScopedFd(fds[1])};
}

}  // namespace

TEST_CASE("TooManyConnectionsOfOneProcessAreRefusedAndOthersAreNot") {
  ControlConnections connections(2);
  const Ends one = SocketPair();
  const Ends two = SocketPair();
  CHECK(connections.Add(one.a.get(), "x").ok());
  CHECK(connections.Add(one.b.get(), "x").ok());
  const absl::Status refused = connections.Add(two.a.get(), "x");
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(std::string(refused.message()).find("control_connections_per_proc_max=2") != std::string::npos);
  CHECK(connections.Add(two.a.get(), "y").ok());
}

TEST_CASE("AClosedConnectionCountsNoMoreAlsoWhenItsNumberIsInUseAgain") {
  ControlConnections connections(1);
  Ends first = SocketPair();
  const int number = first.a.get();
  REQUIRE(connections.Add(number, "x").ok());
  const Ends second = SocketPair();
  // Another socket under the first one's number.
  REQUIRE(dup2(second.a.get(), number) == number);
  CHECK(connections.Add(second.b.get(), "x").ok());
  CHECK(absl::IsResourceExhausted(connections.Add(number, "x")));
}

TEST_CASE("WhatIsNoSocketIsRefused") {
  ControlConnections connections(1);
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const ScopedFd read(pipe_fds[0]);
  const ScopedFd write(pipe_fds[1]);
  CHECK_FALSE(connections.Add(read.get(), "x").ok());
}

}  // namespace monarch
