#include "message/death_board.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "message/memfd.h"

namespace monarch {
namespace {

const HostId kHost = HostId::Random();

DeathBoardView ViewOf(const DeathBoard& board) {
  ScopedFd fd(board.fd());
  auto copy = fd.Dup();
  fd.release();
  REQUIRE(copy.ok());
  auto view = DeathBoardView::Attach(*std::move(copy));
  REQUIRE(view.ok());
  return *std::move(view);
}

TEST_CASE("TellsHowAProcessEndedAndNothingOfOthers") {
  auto board = DeathBoard::Create();
  REQUIRE(board.ok());
  const DeathBoardView view = ViewOf(*board);
  const ProcAddress proc = {kHost, 7, 2};
  CHECK_FALSE(view.EndOf(proc).has_value());
  board->Write(proc, SIGKILL);
  CHECK(view.EndOf(proc) == SIGKILL);
  CHECK_FALSE(view.EndOf({kHost, 7, 3}).has_value());
  CHECK_FALSE(view.EndOf({kHost, 8, 2}).has_value());
  CHECK_FALSE(view.EndOf({kHost, 7 + kDeathBoardEntries, 2}).has_value());
  CHECK_FALSE(view.EndOf({kHost, 0, 0}).has_value());
}

TEST_CASE("ALaterProcessTakesTheEntry") {
  auto board = DeathBoard::Create();
  REQUIRE(board.ok());
  const DeathBoardView view = ViewOf(*board);
  board->Write({kHost, 7, 1}, 9);
  board->Write({kHost, 7 + kDeathBoardEntries, 1}, 3 << 8);
  CHECK_FALSE(view.EndOf({kHost, 7, 1}).has_value());
  CHECK(view.EndOf({kHost, 7 + kDeathBoardEntries, 1}) == 3 << 8);
}

TEST_CASE("NobodyButItsMakerCanWriteTheBoard") {
  auto board = DeathBoard::Create();
  REQUIRE(board.ok());
  CHECK(mmap(nullptr, kDeathBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, board->fd(), 0) == MAP_FAILED);
  CHECK(errno == EPERM);
  CHECK(pwrite(board->fd(), "x", 1, 0) < 0);
  CHECK(errno == EPERM);
  void* read_only = mmap(nullptr, kDeathBoardBytes, PROT_READ, MAP_SHARED, board->fd(), 0);
  REQUIRE(read_only != MAP_FAILED);
  CHECK(mprotect(read_only, kDeathBoardBytes, PROT_READ | PROT_WRITE) != 0);
  munmap(read_only, kDeathBoardBytes);
}

TEST_CASE("ABoardThatOthersCanWriteIsRefused") {
  auto plain = CreateSealedMemfd("plain", kDeathBoardBytes);
  REQUIRE(plain.ok());
  CHECK(absl::IsFailedPrecondition(DeathBoardView::Attach(*std::move(plain)).status()));
  auto short_one = CreateSealedMemfd("short", 4096);
  REQUIRE(short_one.ok());
  CHECK_FALSE(DeathBoardView::Attach(*std::move(short_one)).ok());
}

}  // namespace
}  // namespace monarch
