#include "client/cpp/runtime/end_signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <utility>

#include "message/control_message.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

// What a child process that did this died of; 0: it left by itself.
int DiesOf(const std::function<void()>& what) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);  // The test's own handler.
    what();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

struct Daemon {
  std::pair<PacketSocket, PacketSocket> pair = *PacketSocket::Pair();
  int client_end() const { return pair.first.fd(); }
  // The signal that a goodbye names; 0: none came.
  int64_t Told() {
    Packet packet;
    if (!*pair.second.TryReceive(&packet)) return 0;
    const auto message = DecodeControl(packet.bytes);
    REQUIRE(message.ok());
    REQUIRE(message->type == ControlType::kGoodbye);
    REQUIRE(message->request == 0);
    return *message->body["signal"].AsInt();
  }
};

TEST_CASE("ASignalThatEndsTheClientIsToldAndEndsIt") {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Daemon daemon;
    CHECK(DiesOf([&] {
            TellOfEndSignals(daemon.client_end());
            raise(signal);
          }) == signal);
    CHECK(daemon.Told() == signal);
  }
}

TEST_CASE("ASignalThatTheProgramHandlesOrIgnoresIsItsOwn") {
  for (const bool later : {false, true}) {
    for (void (*handler)(int) : {static_cast<void (*)(int)>(SIG_IGN), +[](int) {}}) {
      Daemon daemon;
      CHECK(DiesOf([&] {
              if (!later) std::signal(SIGTERM, handler);
              TellOfEndSignals(daemon.client_end());
              if (later) std::signal(SIGTERM, handler);
              raise(SIGTERM);
            }) == 0);
      CHECK(daemon.Told() == 0);
    }
  }
}

TEST_CASE("WhileTheDaemonIsAwayTheSignalJustEndsTheClient") {
  Daemon daemon, next;
  const auto away = [&] {
    TellOfEndSignals(daemon.client_end());
    TellNoMoreOfEndSignals(daemon.client_end());
  };
  CHECK(DiesOf([&] {
          away();
          raise(SIGTERM);
        }) == SIGTERM);
  CHECK(daemon.Told() == 0);
  CHECK(DiesOf([&] {
          away();
          TellOfEndSignals(next.client_end());
          TellNoMoreOfEndSignals(daemon.client_end());
          raise(SIGTERM);
        }) == SIGTERM);
  CHECK(daemon.Told() == 0);
  CHECK(next.Told() == SIGTERM);
}

TEST_CASE("AForkedChildOfTheClientDiesSilently") {
  Daemon daemon;
  CHECK(DiesOf([&] {
          TellOfEndSignals(daemon.client_end());
          if (DiesOf([] { raise(SIGHUP); }) != SIGHUP) raise(SIGKILL);
        }) == 0);
  CHECK(daemon.Told() == 0);
}

}  // namespace
}  // namespace monarch
