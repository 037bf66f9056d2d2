#include "client/cpp/runtime/daemon_return.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

TEST_CASE("waits for a daemon double, are capped, and never zero") {
  CHECK(ReturnDelay(0, 0) == absl::Milliseconds(10));
  CHECK(ReturnDelay(1, 0) == absl::Milliseconds(20));
  CHECK(ReturnDelay(100, 0) == absl::Seconds(1));
  CHECK(ReturnDelay(100, 1023) < absl::Seconds(2));
  CHECK(ReturnDelay(100, 1023) > absl::Milliseconds(1990));
}

TEST_CASE("waits for a daemon differ from process to process") {
  CHECK(ReturnDelay(5, 17) != ReturnDelay(5, 18));
  CHECK(ReturnDelay(5, 1024) == ReturnDelay(5, 0));
}

}  // namespace
}  // namespace monarch
