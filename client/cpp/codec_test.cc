#include "monarch/codec.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/status_macros.h"

namespace monarch {
namespace {

template <typename T>
absl::StatusOr<T> There(const T& value) {
  // By bytes, as between two processes.
  MONARCH_ASSIGN_OR_RETURN(const std::string bytes, EncodeValue(Codec<T>::To(value)));
  MONARCH_ASSIGN_OR_RETURN(const Value sent, DecodeValue(bytes));
  return Codec<T>::From(sent);
}

template <typename T>
void CheckThere(const T& value) {
  const absl::StatusOr<T> back = There(value);
  REQUIRE(back.ok());
  CHECK(*back == value);
}

TEST_CASE("values come back as they were") {
  CheckThere(true);
  CheckThere(int8_t{-128});
  CheckThere(std::numeric_limits<int64_t>::min());
  CheckThere(std::numeric_limits<uint64_t>::max());
  CheckThere(std::numeric_limits<float>::max());
  CheckThere(std::numeric_limits<double>::infinity());
  CheckThere(std::string("text with a \0 in it", 19));
  CheckThere(Value::Bytes{"\xff\xfe"});
  CheckThere(Value::Array{"i4", {2}, std::string(8, '\1')});
  CheckThere(std::vector<bool>{true, false});
  CheckThere(std::vector<std::vector<int32_t>>{{1, 2}, {}, {3}});
  CheckThere(std::map<std::string, std::vector<double>>{{"a", {0.5}}, {"b", {}}});
}

TEST_CASE("what does not fit is refused") {
  CHECK(absl::IsInvalidArgument(Codec<int8_t>::From(Value(128)).status()));
  CHECK(absl::IsInvalidArgument(Codec<uint32_t>::From(Value(-1)).status()));
  CHECK(absl::IsInvalidArgument(Codec<int32_t>::From(Value(0.0)).status()));
  CHECK(absl::IsInvalidArgument(Codec<bool>::From(Value(1)).status()));
  CHECK(absl::IsInvalidArgument(Codec<float>::From(Value(1e300)).status()));
  CHECK(absl::IsInvalidArgument(Codec<std::string>::From(Value(Value::Bytes{"x"})).status()));
  CHECK(absl::IsInvalidArgument(Codec<std::vector<int>>::From(Value(Value::List{1, "x"})).status()));
  CHECK(absl::IsInvalidArgument(Codec<std::map<std::string, int>>::From(Value(Value::List{})).status()));
  CHECK(absl::IsInvalidArgument(Codec<Value::Array>::From(Value()).status()));
}

TEST_CASE("text that is not UTF-8 is no text") {
  CHECK(absl::IsInvalidArgument(There(std::string("\xff")).status()));
}

TEST_CASE("an int is taken for a float") {
  CHECK(Codec<double>::From(Value(3)).value() == 3.0);  //
}

TEST_CASE("arguments are matched by number and position") {
  const Value encoded = EncodeArgs(7, "text", std::vector<double>{1.5});
  REQUIRE(encoded.list() != nullptr);
  const auto decoded = DecodeArgs<int64_t, std::string, std::vector<double>>(*encoded.list());
  REQUIRE(decoded.ok());
  CHECK(*decoded == std::tuple<int64_t, std::string, std::vector<double>>(7, "text", {1.5}));
  const auto few = DecodeArgs<int64_t>(*encoded.list());
  CHECK(few.status() == absl::InvalidArgumentError("expected 1 arguments, got 3"));
  const auto wrong = DecodeArgs<int64_t, int64_t, std::vector<double>>(*encoded.list());
  CHECK(absl::IsInvalidArgument(wrong.status()));
  CHECK(wrong.status().message().find("argument 1: ") == 0);
  CHECK(DecodeArgs<>(Value::List{}).ok());
}

}  // namespace
}  // namespace monarch
