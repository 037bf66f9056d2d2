#include "daemon/launcher/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

namespace monarch {
namespace {

constexpr int kWaitMs = 20'000;

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  // Until `wanted` came or the pipe ended.
  std::string ReadUntil(const std::string& wanted) {
    std::string result;
    char buffer[4096];
    while (result.find(wanted) == std::string::npos) {
      pollfd entry{read_end.get(), POLLIN, 0};
      if (poll(&entry, 1, kWaitMs) != 1) break;
      const ssize_t got = read(read_end.get(), buffer, sizeof(buffer));
      if (got <= 0) break;
      result.append(buffer, static_cast<size_t>(got));
    }
    return result;
  }
  ScopedFd read_end;
  ScopedFd write_end;
};

struct Signal {
  void Give() { eventfd_write(fd.get(), 1); }
  bool Wait() {
    pollfd entry{fd.get(), POLLIN, 0};
    return poll(&entry, 1, kWaitMs) == 1;
  }
  ScopedFd fd{eventfd(0, EFD_CLOEXEC)};
};

TEST_CASE("WritesInOrder") {
  Pipe pipe;
  OutputSink sink("test", MakeFdTarget(std::move(pipe.write_end)), 1 << 20);
  for (int i = 0; i < 1000; ++i) sink.Add(std::to_string(i) + "\n");
  sink.Add("end\n");
  const std::string output = pipe.ReadUntil("end\n");
  CHECK(output.substr(0, 6) == "0\n1\n2\n");
  CHECK(output.size() == 10 * 2 + 90 * 3 + 900 * 4 + 4);
}

TEST_CASE("AStuckReaderCostsTheOldestOutputOnly") {
  Pipe pipe;
  OutputSink sink("test", MakeFdTarget(std::move(pipe.write_end)), 64 * 1024);
  const std::string line = std::string(1023, 'x') + "\n";
  for (int i = 0; i < 1024; ++i) sink.Add(line);
  sink.Add("end\n");
  const std::string output = pipe.ReadUntil("end\n");
  CHECK(output.size() < 200 * 1024);
  CHECK(output.find("bytes of output dropped") != std::string::npos);
}

TEST_CASE("CloseLetsGoOfAStuckTarget") {
  Pipe pipe;
  OutputSink sink("test", MakeFdTarget(std::move(pipe.write_end)), 1 << 20);
  sink.Add(std::string(1 << 19, 'x'));
  sink.Close();
  // The write end is closed, so the rest of the pipe's content ends.
  const std::string output = pipe.ReadUntil("never");
  CHECK(output.size() < (1 << 19));
  pollfd entry{pipe.read_end.get(), POLLIN, 0};
  REQUIRE(poll(&entry, 1, kWaitMs) == 1);
  CHECK((entry.revents & POLLHUP) != 0);
}

TEST_CASE("TellsWhenNothingWaits") {
  Pipe pipe;
  Signal idle;
  OutputSink sink("test", MakeFdTarget(std::move(pipe.write_end)), 1 << 20);
  sink.Add("a\n");
  sink.WhenIdle([&idle] { idle.Give(); });
  REQUIRE(idle.Wait());
  CHECK(pipe.ReadUntil("a\n") == "a\n");
}

TEST_CASE("AReaderThatIsGoneIsIdle") {
  signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.read_end.reset();
  Signal idle;
  OutputSink sink("test", MakeFdTarget(std::move(pipe.write_end)), 1 << 20);
  sink.Add("a\n");
  sink.Add("b\n");
  sink.WhenIdle([&idle] { idle.Give(); });
  CHECK(idle.Wait());
}

}  // namespace
}  // namespace monarch
