#include "client/cpp/control/grpc_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <vector>

namespace monarch {
namespace {

// Longer than anything here takes; a test that runs into it has failed.
constexpr int kPatienceMs = 20'000;

// Opens socket pairs and keeps their other ends. Threading: confined to its test.
struct Opener {
  absl::StatusOr<ScopedFd> Open() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    theirs.emplace_back(fds[1]);
    return ScopedFd(fds[0]);
  }
  // Whether the connection was dropped, within `patience_ms`.
  bool Dropped(size_t index, int patience_ms) const {
    pollfd entry = {theirs.at(index).get(), POLLRDHUP, 0};
    return poll(&entry, 1, patience_ms) == 1;
  }
  std::vector<ScopedFd> theirs;
};

}  // namespace

TEST_CASE("AConnectionWithoutUsersIsDroppedAfterAWhile") {
  Opener opener;
  GrpcConnection connection([&] { return opener.Open(); }, absl::Milliseconds(1));
  for (size_t round = 0; round < 3; ++round) {
    REQUIRE(connection.Acquire().ok());
    REQUIRE(opener.theirs.size() == round + 1);
    connection.Release();
    CHECK(opener.Dropped(round, kPatienceMs));
  }
}

TEST_CASE("AConnectionWithAUserIsKept") {
  Opener opener;
  GrpcConnection connection([&] { return opener.Open(); }, absl::Milliseconds(1));
  const auto first = connection.Acquire();
  const auto second = connection.Acquire();
  CHECK(*first == *second);
  connection.Release();
  CHECK_FALSE(opener.Dropped(0, 20));
  CHECK(*connection.Acquire() == *first);
  CHECK(opener.theirs.size() == 1);
}

TEST_CASE("ADroppedConnectionIsReplacedByTheNextUser") {
  Opener opener;
  GrpcConnection connection([&] { return opener.Open(); }, absl::Hours(1));
  const auto first = connection.Acquire();
  connection.Drop(first->get());
  const auto second = connection.Acquire();
  CHECK(*first != *second);
  // Of one that was replaced already.
  connection.Drop(first->get());
  CHECK(*connection.Acquire() == *second);
  connection.Drop(nullptr);
  CHECK(*connection.Acquire() != *second);
  CHECK(opener.theirs.size() == 3);
}

TEST_CASE("ASocketThatCannotBeHadIsTheUsersError") {
  bool fail = true;
  Opener opener;
  GrpcConnection connection(
      [&]() -> absl::StatusOr<ScopedFd> {
        if (fail) return absl::UnavailableError("monarchd has ended");
        return opener.Open();
      },
      absl::Hours(1));
  CHECK(connection.Acquire().status() == absl::UnavailableError("monarchd has ended"));
  fail = false;
  CHECK(connection.Acquire().ok());
}

}  // namespace monarch
