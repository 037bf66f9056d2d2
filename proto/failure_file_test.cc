#include "proto/failure_file.h"

#include <catch2/catch.hpp>

namespace monarch {
namespace {

v1::GetFailuresResponse Failures(int count, size_t bytes) {
  v1::GetFailuresResponse failures;
  for (int i = 0; i < count; ++i) {
    v1::FailureRecord* record = failures.add_failures();
    record->set_unix_ms(i);
    record->mutable_event()->set_stderr_tail(std::string(bytes, 'x'));
  }
  return failures;
}

TEST_CASE("AFailureFileHoldsWhatWasWritten") {
  const auto read = DecodeFailureFile(EncodeFailureFile(Failures(3, 10)));
  REQUIRE(read.ok());
  REQUIRE(read->failures_size() == 3);
  CHECK(read->failures(2).unix_ms() == 2);
  CHECK(read->failures(2).event().stderr_tail() == "xxxxxxxxxx");
}

TEST_CASE("AFailureFileHoldsTheFirstThatFit") {
  const std::string text = EncodeFailureFile(Failures(100, 50 << 10));
  CHECK(text.size() <= kFailureFileBytesMax);
  const auto read = DecodeFailureFile(text);
  REQUIRE(read.ok());
  REQUIRE(read->failures_size() > 5);
  CHECK(read->failures(0).unix_ms() == 0);
  CHECK(DecodeFailureFile(EncodeFailureFile(Failures(1, 2 << 20)))->failures_size() == 0);
}

TEST_CASE("AFailureFileThatIsNotWholeIsRefused") {
  const std::string text = EncodeFailureFile(Failures(2, 10));
  for (size_t size = 0; size < text.size(); ++size) {
    CHECK(absl::IsInvalidArgument(DecodeFailureFile(text.substr(0, size)).status()));
    std::string changed = text;
    changed[size] ^= 0x20;
    CHECK(absl::IsInvalidArgument(DecodeFailureFile(changed).status()));
  }
  CHECK(absl::IsInvalidArgument(DecodeFailureFile(text + "x").status()));
  CHECK(absl::IsInvalidArgument(DecodeFailureFile(std::string(kFailureFileBytesMax + 1, 'x')).status()));
}

}  // namespace
}  // namespace monarch
