#include "base/log.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/scoped_fd.h"

namespace monarch {
namespace {

// Log lines as packets: one write(2) is one packet, so a test sees where writes begin and end.
// Threading: made and destroyed while nobody logs.
class CapturedLog {
 public:
  CapturedLog() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    near_.reset(fds[0]);
    far_.reset(fds[1]);
    SetLogFd(far_.get());
  }
  ~CapturedLog() {
    SetLogFd(STDERR_FILENO);
    SetLogLevel(LogLevel::kInfo);
  }

  // The next write; empty if there is none.
  std::string NextWrite() {
    char buffer[8192];
    const ssize_t got = recv(near_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }
  // The next write without its time.
  std::string NextLine() {
    const std::string line = NextWrite();
    return line.size() > 25 ? line.substr(25) : line;
  }

 private:
  ScopedFd near_;
  ScopedFd far_;
};

TEST_CASE("ALineHasTimeLevelComponentMessageAndKeys", "[log]") {
  CapturedLog log;
  LogInfo("daemon", "session started").With("session", "12ab").With("uid", 1000);
  const std::string line = log.NextWrite();
  CHECK_THAT(line,
             Catch::Matchers::Matches(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z I daemon: session started )"
                                      R"(session=12ab uid=1000\n)"));
  CHECK(log.NextWrite().empty());
}

TEST_CASE("EachLevelHasItsLetter", "[log]") {
  CapturedLog log;
  SetLogLevel(LogLevel::kDebug);
  LogDebug("x", "m");
  LogInfo("x", "m");
  LogWarning("x", "m");
  LogError("x", "m");
  for (const char* expected : {"D x: m\n", "I x: m\n", "W x: m\n", "E x: m\n"})
    CHECK(log.NextLine() == expected);
}

TEST_CASE("LinesBelowTheLevelAreNotWritten", "[log]") {
  CapturedLog log;
  LogDebug("x", "hidden");
  CHECK(log.NextWrite().empty());
  SetLogLevel(LogLevel::kError);
  LogWarning("x", "hidden").With("k", 1);
  CHECK(log.NextWrite().empty());
  LogError("x", "shown");
  CHECK(log.NextLine() == "E x: shown\n");
}

TEST_CASE("ValuesAreQuotedWhenTheyMustBe", "[log]") {
  const std::pair<std::string, std::string> kCases[] = {
      {"plain", "plain"},
      {"/run/monarch:1,2", "/run/monarch:1,2"},
      {"", R"("")"},
      {"two words", R"("two words")"},
      {"a\"b", R"("a\"b")"},
      {"a\\b", R"("a\\b")"},
      {"a=b", R"("a=b")"},
      {"a\nb\r\tc", R"("a\nb\r\tc")"},
      {std::string("a\0b", 3), R"("a\x00b")"},
      {"\x1b[31m", R"("\x1b[31m")"},
      {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
  };
  CapturedLog log;
  for (const auto& [value, shown] : kCases) {
    LogInfo("x", "m").With("k", value);
    CHECK(log.NextLine() == "I x: m k=" + shown + "\n");
  }
}

TEST_CASE("EveryKindOfTextAndNumberIsAValue", "[log]") {
  CapturedLog log;
  const char* c_string = "c";
  LogInfo("x", "m")
      .With("a", std::string_view("v"))
      .With("b", c_string)
      .With("c", -7)
      .With("d", 2.5)
      .With("e", true);
  CHECK(log.NextLine() == "I x: m a=v b=c c=-7 d=2.5 e=1\n");
}

TEST_CASE("AMessageCannotForgeALine", "[log]") {
  CapturedLog log;
  LogInfo("x", "first\nsecond");
  CHECK(log.NextLine() == "I x: first\\nsecond\n");
}

TEST_CASE("ALongLineIsCutToOneWrite", "[log]") {
  CapturedLog log;
  LogInfo("x", "m").With("k", std::string(10'000, 'v'));
  const std::string line = log.NextWrite();
  CHECK(line.size() == 4096);
  CHECK(line.substr(line.size() - 5) == "v...\n");
  CHECK(log.NextWrite().empty());
}

TEST_CASE("ThreadsDoNotMixTheirLines", "[log]") {
  constexpr int kThreads = 4;
  constexpr int kLines = 20;
  CapturedLog log;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) LogInfo("x", "m").With("thread", t).With("line", i);
    });
  }
  // Read along: the socket holds less than all of them where its buffer is small.
  std::set<std::string> lines;
  while (lines.size() < kThreads * kLines) {
    const std::string line = log.NextLine();
    if (!line.empty()) REQUIRE(lines.insert(line).second);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(lines.contains("I x: m thread=3 line=19\n"));
}

TEST_CASE("LoggingKeepsErrnoEvenWhenItFails", "[log]") {
  SetLogFd(-1);
  errno = ENOSPC;
  LogError("x", "lost");
  const int after = errno;
  SetLogFd(STDERR_FILENO);
  CHECK(after == ENOSPC);
}

}  // namespace
}  // namespace monarch
