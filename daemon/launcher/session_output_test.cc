#include "daemon/launcher/session_output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>

namespace monarch {
namespace {

TEST_CASE("LabelsEachLine") {
  CHECK(LabelLines("w[0]", "a\nb\n") == "w[0]| a\nw[0]| b\n");
  CHECK(LabelLines("w[0]", "a\n\nb") == "w[0]| a\nw[0]| \nw[0]| b\n");
  CHECK(LabelLines("w[0]", "") == "");
}

struct Fixture {
  explicit Fixture(bool with_stream = true) {
    char name[] = "/tmp/monarch_output_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    dir = name;
    int out[2];
    int err[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    int marked[2];
    REQUIRE(pipe2(marked, O_CLOEXEC) == 0);
    marked_reader.reset(marked[0]);
    out_reader.reset(out[0]);
    err_reader.reset(err[0]);
    output = std::make_unique<SessionOutput>(4 << 20, ScopedFd(out[1]), ScopedFd(err[1]),
                                             with_stream ? ScopedFd(marked[1]) : ScopedFd(),
                                             SessionOutput::Log{dir + "/log", 1000});
  }
  ~Fixture() {
    unlink((dir + "/log").c_str());
    rmdir(dir.c_str());
  }
  void WaitIdle() {
    auto idle = std::make_shared<std::promise<void>>();
    std::future<void> seen = idle->get_future();
    output->WhenIdle([idle] { idle->set_value(); });
    seen.wait();
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
  ScopedFd marked_reader;
  std::unique_ptr<SessionOutput> output;
};

TEST_CASE("GoesToTheClientAsItIsAndToTheLogWithLabels") {
  Fixture f;
  f.output->Add(OutputStream::kStdout, {"w[0]", ""}, "out\n");
  f.output->Add(OutputStream::kStderr, {"w[1]", ""}, "err\n");
  f.WaitIdle();
  CHECK(Fixture::Read(f.out_reader.get()) == "out\n");
  CHECK(Fixture::Read(f.err_reader.get()) == "err\n");
  CHECK(f.ReadLog() == "w[0]| out\nw[1]| err\n");
}

TEST_CASE("KeepsTheLogWhenTheClientIsGone") {
  Fixture f;
  f.output->CloseClient();
  f.output->Add(OutputStream::kStdout, {"w[0]", ""}, "late\n");
  f.WaitIdle();
  CHECK(Fixture::Read(f.out_reader.get()) == "");
  CHECK(f.ReadLog() == "w[0]| late\n");
}

TEST_CASE("GoesToTheOutputStreamWithMarkers") {
  Fixture f;
  f.output->Add(OutputStream::kStdout, {"w[0]", "t 7"}, "one\n\ntwo\nthr");
  f.output->Add(OutputStream::kStderr, {"w[1]", "t 8"}, "bad\n");
  f.output->Add(OutputStream::kStderr, {"w[1]", "t 8"}, "unfinished");
  f.output->AddEnd({"w[1]", "t 8"});
  f.output->AddEnd({"w[2]", ""});
  f.WaitIdle();
  CHECK(Fixture::Read(f.marked_reader.get()) ==
        "t 7 o one\nt 7 o \nt 7 o two\nt 7 O thr\nt 8 e bad\nt 8 E unfinished\nt 8 x \n");
  CHECK(f.ReadLog() == "w[0]| one\nw[0]| \nw[0]| two\nw[0]| thr\nw[1]| bad\nw[1]| unfinished\n");
}

TEST_CASE("GoesAsItIsWhereTheClientHasNoOutputStream") {
  Fixture f(/*with_stream=*/false);
  f.output->Add(OutputStream::kStdout, {"w[0]", "t 7"}, "out\n");
  f.output->AddEnd({"w[0]", "t 7"});
  f.WaitIdle();
  CHECK(Fixture::Read(f.out_reader.get()) == "out\n");
}

}  // namespace
}  // namespace monarch
