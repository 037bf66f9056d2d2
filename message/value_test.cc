#include "message/value.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "message/bytes.h"

namespace monarch {
namespace {

Value Sample() {
  return Value::Map{{"a", Value()},
                    {"b", false},
                    {"c", true},
                    {"d", -2},
                    {"e", 1.5},
                    {"f", "\xC3\xA9"},
                    {"g", Value::Bytes{std::string("\xFF\0", 2)}},
                    {"h", Value::List{1, Value(Value::List())}},
                    {"i", Value::Array{"i2", {1, 2}, std::string("\x01\x00\xFF\xFF", 4)}}};
}

const char* const kSampleHex =
    "0809000000010000006100010000006201010000006302010000006403feffffffffffffff0100000065040000000000"
    "00f83f01000000660502000000c3a901000000670602000000ff00010000006807020000000301000000000000000700"
    "000000010000006909026932020100000000000000020000000000000004000000000000000100ffff";

void CheckRefused(const std::string& bytes) {
  INFO(absl::BytesToHexString(bytes));
  const auto value = DecodeValue(bytes);
  REQUIRE_FALSE(value.ok());
  CHECK(value.status().code() == absl::StatusCode::kInvalidArgument);
}

std::string Hex(const char* hex) { return absl::HexStringToBytes(hex); }

void CheckNotEncoded(const Value& value, const std::string& why, uint64_t length_max = kValueLengthMax) {
  const absl::Status status = EncodeValue(value, length_max).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::StartsWith(why));
}

// As a sender that checks nothing would write it.
std::string ArrayAsItIs(const Value::Array& array) {
  std::string bytes = "\x09";
  bytes += static_cast<char>(array.dtype.size());
  bytes += array.dtype;
  bytes += static_cast<char>(array.shape.size());
  for (const uint64_t size : array.shape) AppendLe<uint64_t>(&bytes, size);
  AppendLe<uint64_t>(&bytes, array.data.size());
  return bytes + array.data;
}

std::string NestedLists(int depth) {
  std::string bytes;
  for (int i = 0; i < depth; ++i) bytes += Hex("0701000000");
  return bytes + '\0';
}

TEST_CASE("ValueBytesAreGolden") {
  CHECK(absl::BytesToHexString(*EncodeValue(Sample())) == kSampleHex);
  const auto decoded = DecodeValue(Hex(kSampleHex));
  REQUIRE(decoded.ok());
  CHECK(*decoded == Sample());
}

TEST_CASE("ValueRoundTripsExtremes") {
  const Value values[] = {std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<double>::infinity(),
                          -0.0,
                          "",
                          Value::Bytes{},
                          Value::List{},
                          Value::Map{},
                          Value::Map{{"", 1}},
                          Value::Array{"f8", {}, std::string(8, 'x')},
                          Value::Array{"u1", {0, 5}, ""},
                          Value(std::string(100'000, 'z'))};
  for (const Value& value : values) {
    const auto decoded = DecodeValue(*EncodeValue(value));
    REQUIRE(decoded.ok());
    CHECK(*decoded == value);
  }
  const auto nan = DecodeValue(*EncodeValue(std::nan("")));
  REQUIRE(nan.ok());
  CHECK(std::isnan(*nan->AsFloat()));
}

TEST_CASE("ValueRefusesEveryTruncation") {
  const std::string bytes = *EncodeValue(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) CheckRefused(bytes.substr(0, size));
}

TEST_CASE("ValueRefusesTrailingBytes") {
  CheckRefused(*EncodeValue(Sample()) + '\0');
  CheckRefused(Hex("0000"));
}

TEST_CASE("ValueRefusesUnknownTag") {
  for (int tag = 10; tag < 256; ++tag) CheckRefused(std::string(1, static_cast<char>(tag)));
}

TEST_CASE("ValueRefusesAbsurdLengthsAndCounts") {
  CheckRefused(Hex("05ffffffff"));
  CheckRefused(Hex("06ffffffff61"));
  CheckRefused(Hex("07ffffffff00"));
  CheckRefused(Hex("08ffffffff0000000000"));
  CheckRefused(Hex("0802000000000000000000"));  // fewer bytes than the smallest two entries
  CheckRefused(Hex("0902753101ffffffffffffffffffffffffffffffff"));  // array of 2^64 - 1 bytes
  CheckRefused(Hex("09027531ff00"));                                // 255 dimensions, no bytes
  CheckRefused(Hex("09ff"));
}

TEST_CASE("ValueAllocatesInProportionToWhatIsThere") {
  // Every list claims all bytes that are left; a decoder that believed the counts would take 64 times as
  // much.
  const uint32_t claimed = 1'000'000;
  std::string bytes;
  for (int i = 0; i < 64; ++i) {
    bytes += '\x07';
    AppendLe<uint32_t>(&bytes, claimed);
  }
  bytes.append(claimed, '\xFF');
  CheckRefused(bytes);
}

TEST_CASE("ValueNestsSixtyFourDeepAndNoDeeper") {
  CHECK(DecodeValue(NestedLists(64)).ok());
  CheckRefused(NestedLists(65));
  CheckRefused(NestedLists(100'000));
  std::string maps;
  for (int i = 0; i < 65; ++i) maps += Hex("080100000000000000");
  CheckRefused(maps + '\0');
}

TEST_CASE("ValueRefusesMapKeysOutOfOrderOrTwice") {
  CHECK(DecodeValue(Hex("0802000000"
                        "0100000061"
                        "00"
                        "0100000062"
                        "00"))
            .ok());
  CheckRefused(
      Hex("0802000000"
          "0100000062"
          "00"
          "0100000061"
          "00"));
  CheckRefused(
      Hex("0802000000"
          "0100000061"
          "00"
          "0100000061"
          "00"));
  // Unsigned comparison: U+00E9 is greater than "z".
  CHECK(DecodeValue(Hex("0802000000"
                        "010000007a"
                        "00"
                        "02000000c3a9"
                        "00"))
            .ok());
  CheckRefused(
      Hex("0802000000"
          "02000000c3a9"
          "00"
          "010000007a"
          "00"));
}

TEST_CASE("ValueRefusesTextThatIsNotUtf8") {
  CheckRefused(Hex("0501000000ff"));
  CheckRefused(Hex("0503000000eda080"));
  CheckRefused(
      Hex("0801000000"
          "01000000ff"
          "00"));
  CHECK(DecodeValue(Hex("0601000000ff")).ok());
}

TEST_CASE("ValueRefusesArraysThatDoNotFit") {
  const Value::Array wrong[] = {
      {"f3", {1}, "abc"},
      {"<f4", {1}, "abcd"},
      {"", {1}, ""},
      {"f4", {2}, "abcd"},
      {"f4", {1}, "abcde"},
      // The product wraps around to the length of the data.
      {"u1", {uint64_t{1} << 32, uint64_t{1} << 32}, ""},
      {"f8", {uint64_t{1} << 61}, ""},
  };
  for (const Value::Array& array : wrong) {
    CheckRefused(ArrayAsItIs(array));
    CheckNotEncoded(array, "value: ");
  }
}

TEST_CASE("ValueTooLongForItsLengthFieldIsNotEncoded") {
  constexpr uint64_t kLengthMax = 3;
  const Value fits = Value::Map{{"abc", "abc"}, {"b", Value::Bytes{"abc"}}, {"l", Value::List{1, 2, 3}}};
  CHECK(EncodeValue(fits, kLengthMax).value() == EncodeValue(fits).value());
  CHECK(EncodeValue(Value::Array{"u1", {4}, "abcd"}, kLengthMax).ok());  // its length has eight bytes

  CheckNotEncoded("abcd", "value: str of 4 bytes, at most 3", kLengthMax);
  CheckNotEncoded(Value::Bytes{"abcd"}, "value: bytes of 4 bytes, at most 3", kLengthMax);
  CheckNotEncoded(Value::List{1, 2, 3, 4}, "value: list of 4 elements, at most 3", kLengthMax);
  CheckNotEncoded(Value::Map{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}}, "value: map of 4 elements, at most 3",
                  kLengthMax);
  CheckNotEncoded(Value::Map{{"abcd", 1}}, "value: str of 4 bytes, at most 3", kLengthMax);
  CheckNotEncoded(Value::List{1, Value::Map{{"a", "abcd"}}}, "value: str of 4 bytes, at most 3", kLengthMax);
}

TEST_CASE("ValueThatNobodyWouldDecodeIsNotEncoded") {
  CheckNotEncoded("\xFF", "value: text that is not UTF-8");
  CheckNotEncoded(Value::Map{{"\xFF", 1}}, "value: text that is not UTF-8");
  CheckNotEncoded(Value::Array{"u1", std::vector<uint64_t>(256, 1), "a"},
                  "value: array of 256 dimensions, at most 255");
  Value lists = 1;
  for (int i = 0; i < 64; ++i) lists = Value(Value::List{std::move(lists)});
  CHECK(EncodeValue(lists).ok());
  CheckNotEncoded(Value(Value::List{lists}), "value: nested deeper than 64");
  CheckNotEncoded(Value(Value::Map{{"a", lists}}), "value: nested deeper than 64");
}

TEST_CASE("ValueAccessorsNameBothTypes") {
  CHECK(*Value(3).AsInt() == 3);
  CHECK(*Value(3).AsFloat() == 3.0);
  CHECK(*Value(true).AsBool());
  CHECK(*Value("x").AsString() == "x");
  CHECK(*Value(Value::Bytes{"y"}).AsBytes() == "y");
  CHECK(*Value(uint64_t{0xFFFFFFFFFFFFFFFF}).AsInt() == -1);
  const auto wrong = Value("x").AsInt().status();
  CHECK(wrong.code() == absl::StatusCode::kInvalidArgument);
  CHECK(wrong.message() == "value: wanted int, found str");
  CHECK(Value(1.5).AsInt().status().message() == "value: wanted int, found float");
  CHECK(Value(1).AsBool().status().message() == "value: wanted bool, found int");
  CHECK(Value("x").AsBytes().status().message() == "value: wanted bytes, found str");
}

TEST_CASE("ValueMembersOfWhatIsNoMapAreNil") {
  CHECK(Sample()["d"] == Value(-2));
  CHECK(Sample()["none"].is_nil());
  CHECK(Value(1)["a"]["b"].is_nil());
}

TEST_CASE("ValueReprIsPythons") {
  const std::pair<Value, const char*> cases[] = {
      {Value(), "None"},
      {true, "True"},
      {false, "False"},
      {-7, "-7"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {-0.0, "-0.0"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1.5e300, "1.5e+300"},
      {0.0001, "0.0001"},
      {0.00001, "1e-05"},
      {std::numeric_limits<double>::infinity(), "inf"},
      {-std::numeric_limits<double>::infinity(), "-inf"},
      {std::nan(""), "nan"},
      {"it", "'it'"},
      {"it's", "\"it's\""},
      {"it's \"x\"", R"('it\'s "x"')"},
      {"a\n\t\r\\\x01\x7F", R"('a\n\t\r\\\x01\x7f')"},
      {"\xC3\xA9", "'\xC3\xA9'"},
      {"\xC2\x9B", R"('\x9b')"},
      {"\xFF", R"('\xff')"},
      {Value::Bytes{std::string("a'\0\xFF", 4)}, R"(b"a'\x00\xff")"},
      {Value::List{}, "[]"},
      {Value::List{1, "a"}, "[1, 'a']"},
      {Value::Map{}, "{}"},
      {Value::Map{{"a", 1}, {"b", Value::List{}}}, "{'a': 1, 'b': []}"},
      {Value::Array{"f4", {2, 3}, std::string(24, 0)}, "array(shape=(2, 3), dtype='f4')"},
      {Value::Array{"f4", {1}, std::string(4, 0)}, "array(shape=(1,), dtype='f4')"},
      {Value::Array{"f4", {}, std::string(4, 0)}, "array(shape=(), dtype='f4')"},
  };
  for (const auto& [value, repr] : cases) CHECK(value.ToString() == repr);
}

}  // namespace
}  // namespace monarch
