#include "daemon/control_peers.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>

namespace monarch {

TEST_CASE("ATokenNamesItsProcessAndNoOther") {
  ControlPeers peers;
  const ControlPeer first{SessionId::Random(), {HostId::Random(), 1, 1}};
  const ControlPeer second{SessionId::Random(), {HostId::Random(), 1, 1}};
  const ControlPass one = peers.Issue(first);
  const ControlPass two = peers.Issue(second);
  CHECK(one.token() != two.token());
  CHECK(peers.Find(one.token())->session == first.session);
  CHECK(peers.Find(two.token())->session == second.session);
  CHECK(peers.Find(two.token())->asker == second.asker);
  CHECK_FALSE(peers.Find(StartToken::Random()).has_value());
  CHECK_FALSE(peers.Find(StartToken()).has_value());
}

TEST_CASE("ATokenEndsWithItsPass") {
  ControlPeers peers;
  StartToken token;
  {
    ControlPass outer;
    {
      ControlPass inner = peers.Issue({SessionId::Random(), {HostId::Random(), 1, 1}});
      token = inner.token();
      outer = std::move(inner);
    }
    CHECK(peers.Find(token).has_value());
  }
  CHECK_FALSE(peers.Find(token).has_value());
  CHECK(peers.size() == 0);
}

TEST_CASE("ATokenOfAnotherDaemonIsTakenOnce") {
  ControlPeers peers;
  const StartToken token = StartToken::Random();
  const ControlPeer peer{SessionId::Random(), {HostId::Random(), 1, 1}};
  {
    const std::optional<ControlPass> pass = peers.Admit(token, peer);
    REQUIRE(pass.has_value());
    CHECK_FALSE(peers.Admit(token, {SessionId::Random(), peer.asker}).has_value());
    CHECK(peers.Find(token)->session == peer.session);
  }
  CHECK(peers.Admit(token, peer).has_value());
}

TEST_CASE("AConnectionEndsWithThePassThatHoldsIt") {
  ControlPeers peers;
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  const ScopedFd server(fds[0]);  // still open in somebody's hands
  const ScopedFd client(fds[1]);
  char byte = 0;
  {
    ControlPass outer;
    {
      ControlPass inner = peers.Issue({SessionId::Random(), {HostId::Random(), 1, 1}});
      inner.Hold(*server.Dup());
      outer = std::move(inner);
    }
    CHECK(recv(client.get(), &byte, 1, MSG_DONTWAIT) < 0);
  }
  CHECK(recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0);
}

}  // namespace monarch
