#include "daemon/launcher/session_output.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

namespace monarch {
namespace {

constexpr int kWaitMs = 20'000;

TEST_CASE("LabelsEachLine") {
  CHECK(LabelLines("w[0]", "a\nb\n") == "w[0]| a\nw[0]| b\n");
  CHECK(LabelLines("w[0]", "a\n\nb") == "w[0]| a\nw[0]| \nw[0]| b\n");
  CHECK(LabelLines("w[0]", "") == "");
}

struct Fixture {
  Fixture() {
    char name[] = "/tmp/monarch_output_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    dir = name;
    int out[2];
    int err[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    out_reader.reset(out[0]);
    err_reader.reset(err[0]);
    output = std::make_unique<SessionOutput>(SessionOutputOptions{}, ScopedFd(out[1]), ScopedFd(err[1]),
                                             SessionOutput::Log{dir + "/log", 1000});
  }
  ~Fixture() {
    unlink((dir + "/log").c_str());
    rmdir(dir.c_str());
  }
  void WaitIdle() {
    const ScopedFd event(eventfd(0, EFD_CLOEXEC));
    output->WhenIdle([&event] { eventfd_write(event.get(), 1); });
    pollfd entry{event.get(), POLLIN, 0};
    REQUIRE(poll(&entry, 1, kWaitMs) == 1);
  }
  std::string ReadLog() const {
    std::ifstream in(dir + "/log");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static std::string Read(int fd) {
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }

  std::string dir;
  ScopedFd out_reader;
  ScopedFd err_reader;
  std::unique_ptr<SessionOutput> output;
};

TEST_CASE("GoesToTheClientAsItIsAndToTheLogWithLabels") {
  Fixture f;
  f.output->Add(OutputStream::kStdout, "w[0]", "out\n");
  f.output->Add(OutputStream::kStderr, "w[1]", "err\n");
  f.WaitIdle();
  CHECK(Fixture::Read(f.out_reader.get()) == "out\n");
  CHECK(Fixture::Read(f.err_reader.get()) == "err\n");
  CHECK(f.ReadLog() == "w[0]| out\nw[1]| err\n");
}

TEST_CASE("KeepsTheLogWhenTheClientIsGone") {
  Fixture f;
  f.output->CloseClient();
  f.output->Add(OutputStream::kStdout, "w[0]", "late\n");
  f.WaitIdle();
  CHECK(Fixture::Read(f.out_reader.get()) == "");
  CHECK(f.ReadLog() == "w[0]| late\n");
}

}  // namespace
}  // namespace monarch
