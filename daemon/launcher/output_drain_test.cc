#include "daemon/launcher/output_drain.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace monarch {
namespace {

struct Fixture {
  Fixture() {
    absl::StatusOr<std::unique_ptr<EventLoop>> made = MakeEpollEventLoop();
    REQUIRE(made.ok());
    loop = *std::move(made);
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    write_end.reset(ends[1]);
    drain = std::make_unique<OutputDrain>(loop.get(), ScopedFd(ends[0]), [this](std::string lines) {
      pieces.push_back(std::move(lines));
      if (pieces.size() == stop_at) loop->Stop();
    });
  }
  void Write(const std::string& text) {
    REQUIRE(write(write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void RunUntil(size_t count) {
    stop_at = count;
    loop->RunAfter(absl::Seconds(20), [this] { loop->Stop(); });
    loop->Run();
  }

  std::unique_ptr<EventLoop> loop;
  ScopedFd write_end;
  size_t stop_at = 0;
  std::vector<std::string> pieces;
  std::unique_ptr<OutputDrain> drain;
};

TEST_CASE("GivesWholeLinesAndTheUnfinishedOneAfterAPause") {
  Fixture f;
  f.Write("one\ntwo\nthr");
  f.RunUntil(2);
  CHECK(f.pieces == std::vector<std::string>{"one\ntwo\n", "thr"});
}

TEST_CASE("GivesTheUnfinishedLineAtTheEnd") {
  Fixture f;
  f.Write("one");
  f.write_end.reset();
  f.RunUntil(1);
  CHECK(f.pieces == std::vector<std::string>{"one"});
  CHECK(f.drain->ended());
}

TEST_CASE("DrainsWithoutWaitingForTheEnd") {
  Fixture f;
  f.Write("one\ntwo");
  f.drain->DrainNow();
  CHECK(f.pieces == std::vector<std::string>{"one\n", "two"});
  CHECK_FALSE(f.drain->ended());
}

}  // namespace
}  // namespace monarch
