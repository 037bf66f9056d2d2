#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/scoped_fd.h"

namespace monarch {
namespace {

struct SocketPair {
  SocketPair() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  ScopedFd near;
  ScopedFd far;
};

template <typename F>
int SignalOf(F body) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::signal(SIGABRT, SIG_DFL);
    close(STDERR_FILENO);
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_CASE("ASocketDeliversBytesThenTheHangUp", "[epoll_event_loop]") {
  const auto loop = MakeEpollEventLoop().value();
  SocketPair pair;
  REQUIRE(write(pair.far.get(), "news", 4) == 4);
  std::string received;
  bool hung_up = false;
  REQUIRE(loop->WatchFd(pair.near.get(), EPOLLIN,
                        [&](uint32_t events) {
                          char buffer[16];
                          const ssize_t got = read(pair.near.get(), buffer, sizeof(buffer));
                          if (got > 0) {
                            received.append(buffer, static_cast<size_t>(got));
                            pair.far.reset();
                            return;
                          }
                          hung_up = (events & EPOLLHUP) != 0;
                          loop->Unwatch(pair.near.get());
                          loop->Stop();
                        })
              .ok());
  loop->Run();
  CHECK(received == "news");
  CHECK(hung_up);
}

TEST_CASE("AHangUpIsReportedToAWatchOfNothing", "[epoll_event_loop]") {
  const auto loop = MakeEpollEventLoop().value();
  SocketPair pair;
  uint32_t seen = 0;
  REQUIRE(loop->WatchFd(pair.near.get(), 0,
                        [&](uint32_t events) {
                          seen = events;
                          loop->Stop();
                        })
              .ok());
  loop->Post([&] { pair.far.reset(); });
  loop->Run();
  CHECK((seen & EPOLLHUP) != 0);
}

TEST_CASE("AFileThatCannotBeWatchedIsAnError", "[epoll_event_loop]") {
  const auto loop = MakeEpollEventLoop().value();
  char path[] = "/tmp/monarch_loop_XXXXXX";
  const ScopedFd file(mkstemp(path));
  unlink(path);
  CHECK(loop->WatchFd(file.get(), EPOLLIN, [](uint32_t) {}).code() == absl::StatusCode::kPermissionDenied);
  // The failed try leaves nothing behind.
  CHECK(loop->UpdateWatch(file.get(), EPOLLIN).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("MoreReadyFdsThanOneBatchAreAllServed", "[epoll_event_loop]") {
  const auto loop = MakeEpollEventLoop().value();
  constexpr int kPairs = 150;
  std::vector<std::unique_ptr<SocketPair>> pairs;
  int served = 0;
  for (int i = 0; i < kPairs; ++i) {
    pairs.push_back(std::make_unique<SocketPair>());
    const int fd = pairs.back()->near.get();
    REQUIRE(write(pairs.back()->far.get(), "x", 1) == 1);
    REQUIRE(loop->WatchFd(fd, EPOLLIN,
                          [&, fd](uint32_t) {
                            loop->Unwatch(fd);
                            if (++served == kPairs) loop->Stop();
                          })
                .ok());
  }
  loop->Run();
  CHECK(served == kPairs);
}

TEST_CASE("AnotherThreadsCallsAbort", "[epoll_event_loop]") {
  CHECK(SignalOf([] {
          const auto loop = MakeEpollEventLoop().value();
          std::thread([&] { loop->RunAfter(absl::ZeroDuration(), [] {}); }).join();
        }) == SIGABRT);
  CHECK(SignalOf([] {
          const auto loop = MakeEpollEventLoop().value();
          std::thread([&] { loop->Post([] {}); }).join();
        }) == 0);
}

TEST_CASE("RunningTwiceAborts", "[epoll_event_loop]") {
  CHECK(SignalOf([] {
          const auto loop = MakeEpollEventLoop().value();
          loop->Stop();
          loop->Run();
          loop->Run();
        }) == SIGABRT);
}

TEST_CASE("ClosingBeforeUnwatchingAborts", "[epoll_event_loop]") {
  CHECK(SignalOf([] {
          const auto loop = MakeEpollEventLoop().value();
          SocketPair pair;
          const int fd = pair.near.get();
          if (!loop->WatchFd(fd, EPOLLIN, [](uint32_t) {}).ok()) _exit(1);
          pair.near.reset();
          loop->Unwatch(fd);
        }) == SIGABRT);
}

}  // namespace
}  // namespace monarch
