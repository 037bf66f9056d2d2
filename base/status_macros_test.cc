#include "base/status_macros.h"

#include <catch2/catch.hpp>
#include <memory>

namespace monarch {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

absl::Status Check(int value, bool& passed) {
  MONARCH_RETURN_IF_ERROR(Make(value).status());
  passed = true;
  return absl::OkStatus();
}

absl::StatusOr<int> Sum(int a, int b) {
  MONARCH_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  std::unique_ptr<int> second;
  MONARCH_ASSIGN_OR_RETURN(second, Make(b));
  return *first + *second;
}

TEST_CASE("ReturnIfErrorPassesOkAndReturnsAnError", "[status_macros]") {
  bool passed = false;
  CHECK(Check(-1, passed).code() == absl::StatusCode::kOutOfRange);
  CHECK_FALSE(passed);
  CHECK(Check(1, passed).ok());
  CHECK(passed);
}

TEST_CASE("AssignOrReturnMovesValuesAndReturnsTheFirstError", "[status_macros]") {
  CHECK(Sum(2, 3).value() == 5);
  CHECK(Sum(-1, 3).status().message() == "negative");
  CHECK(Sum(2, -3).status().code() == absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace monarch
