#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "client/cpp/runtime/runtime_fixture.h"

namespace monarch {
namespace {

std::string TempPath(const std::string& name) {
  const char* dir = getenv("TEST_TMPDIR");
  return std::string(dir == nullptr ? "/tmp" : dir) + "/" + name;
}

// A program that is no monarchd.
std::string Script(const std::string& name, const std::string& body) {
  const std::string path = TempPath(name);
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  REQUIRE(chmod(path.c_str(), 0755) == 0);
  return path;
}

absl::Status StartWith(const std::string& monarchd) {
  ClientOptions options;
  options.address = "private";
  options.monarchd_path = monarchd;
  return Runtime::StartClient(options).status();
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

bool NoChildIsLeft() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    if (pid_t child = 0; children >> child) return false;
  }
  return true;
}

TEST_CASE("a private daemon serves its client and goes with it") {
  ClientOptions options;
  options.address = "private";
  options.monarchd_path = "daemon/monarchd";
  options.name = "client_start_test";
  auto runtime = Runtime::StartClient(options);
  INFO(runtime.status().ToString());
  REQUIRE(runtime.ok());
  CHECK_FALSE((*runtime)->host_name().empty());
  CHECK((*runtime)->self().proc != 0);
  CHECK((*runtime)->OpenControl().ok());
  TestActor echo(**runtime, (*runtime)->NextActorId(), [&](const Message& message) {
    static_cast<void>((*runtime)->Reply(message, FrameKind::kReply, OnePart(TextOf(message))));
  });
  const auto answer = CallOne(**runtime, echo.address(), "hello");
  REQUIRE(answer.ok());
  CHECK(TextOf(*answer) == "hello");
  const auto nowhere = CallOne(**runtime, {{(*runtime)->self().host, 4711, 1}, 5}, "x");
  REQUIRE(nowhere.ok());
  CHECK(nowhere->header.kind == FrameKind::kFailure);
  CHECK((*runtime)->Goodbye(kTestTimeout).ok());
  echo.Quit();
}

TEST_CASE("a private daemon whose runtime is gone is gone, too") {
  ClientOptions options;
  options.address = "private";
  options.monarchd_path = "daemon/monarchd";
  REQUIRE(Runtime::StartClient(options).ok());
  CHECK(Eventually(NoChildIsLeft));
}

TEST_CASE("what is wrong with the daemon is told") {
  CHECK(absl::IsNotFound(StartWith("/nonexistent/monarchd")));
  const absl::Status fails = StartWith(Script("fails", "echo 'no space left' >&2; exit 3"));
  CHECK_FALSE(fails.ok());
  CHECK(Text(fails).find("no space left") != std::string::npos);
  CHECK(Text(fails).find("protocol 1") != std::string::npos);
  CHECK(NoChildIsLeft());
}

TEST_CASE("a daemon that hangs is an error after five seconds") {
  const SystemClock clock;
  const absl::Duration start = clock.Now();
  CHECK(absl::IsUnavailable(StartWith(Script("hangs", "exec sleep 60"))));
  CHECK(clock.Now() - start > absl::Seconds(4));
  CHECK(NoChildIsLeft());
}

TEST_CASE("the daemon inherits its socket and nothing else") {
  const int kept = open("/dev/null", O_RDONLY);  // Without close-on-exec, as much user code has it.
  const std::string list = TempPath("fds");
  const absl::Status ended = StartWith(Script("lists", "ls /proc/$$/fd > " + list));
  CHECK_FALSE(ended.ok());
  close(kept);
  std::ifstream file(list);
  for (std::string fd; file >> fd;) {
    // The shell has its script open beside what it was given.
    CHECK((std::stoi(fd) <= 3 || std::stoi(fd) >= 10));
  }
}

TEST_CASE("addresses") {
  ClientOptions options;
  options.address = "tcp:somewhere";
  CHECK(absl::IsInvalidArgument(Runtime::StartClient(options).status()));
  options.address = "unix:/nonexistent";
  CHECK(absl::IsUnavailable(Runtime::StartClient(options).status()));
}

}  // namespace
}  // namespace monarch
