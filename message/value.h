#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace monarch {

// The self-describing value that C++ and Python exchange, and the body of every control message.
// Threading: plain data; immutable once shared.
class Value {
 public:
  enum class Type : uint8_t { kNil, kBool, kInt, kFloat, kString, kBytes, kList, kMap, kArray };
  struct Bytes {
    std::string data;
    bool operator==(const Bytes&) const = default;
  };
  // A dense n-dimensional array, row-major. dtype as numpy's type strings without byte order: "f4", "i8",
  // "u1", "b1".
  struct Array {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::string data;  // product(shape) * item size bytes, little endian
    bool operator==(const Array&) const = default;
  };
  using List = std::vector<Value>;
  using Map = std::map<std::string, Value>;

  Value() = default;
  Value(bool v) : v_(v) {}                            // NOLINT: implicit by design, as literals
  Value(int v) : v_(int64_t{v}) {}                    // NOLINT
  Value(int64_t v) : v_(v) {}                         // NOLINT
  Value(uint32_t v) : v_(int64_t{v}) {}               // NOLINT
  Value(uint64_t v) : v_(static_cast<int64_t>(v)) {}  // NOLINT: bit pattern kept
  Value(double v) : v_(v) {}                          // NOLINT
  Value(std::string v) : v_(std::move(v)) {}          // NOLINT
  Value(std::string_view v) : v_(std::string(v)) {}   // NOLINT
  Value(const char* v) : v_(std::string(v)) {}        // NOLINT
  Value(Bytes v) : v_(std::move(v)) {}                // NOLINT
  Value(List v) : v_(std::move(v)) {}                 // NOLINT
  Value(Map v) : v_(std::move(v)) {}                  // NOLINT
  Value(Array v) : v_(std::move(v)) {}                // NOLINT

  Type type() const { return static_cast<Type>(v_.index()); }
  bool is_nil() const { return type() == Type::kNil; }

  // The value, or InvalidArgument naming the wanted and the found type.
  absl::StatusOr<bool> AsBool() const;
  absl::StatusOr<int64_t> AsInt() const;
  absl::StatusOr<double> AsFloat() const;  // an int is taken too
  absl::StatusOr<std::string> AsString() const;
  absl::StatusOr<std::string> AsBytes() const;
  // Null if it is not of that type. The pointer lives as long as this value.
  const List* list() const { return std::get_if<List>(&v_); }
  const Map* map() const { return std::get_if<Map>(&v_); }
  const Array* array() const { return std::get_if<Array>(&v_); }
  const std::string* string() const { return std::get_if<std::string>(&v_); }
  const Bytes* bytes() const { return std::get_if<Bytes>(&v_); }

  // Member of a map; a shared nil if this is no map or has no such key.
  const Value& operator[](std::string_view key) const;

  std::string ToString() const;  // as Python's repr would show it; for logs and tests
  bool operator==(const Value&) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, List, Map, Array> v_;
};

// The most bytes of a text or of bytes, and the most elements of a list or a map, that the format can count.
inline constexpr uint64_t kValueLengthMax = 0xFFFFFFFF;

// Far above what any message of ours nests; bounds recursion over a value.
inline constexpr int kValueDepthMax = 64;

// What DecodeValue takes. InvalidArgument, naming the value's part and the limit, for what it would refuse:
// text, bytes, lists and maps longer than length_max, nesting deeper than 64, text that is not UTF-8, an
// array whose data does not match dtype and shape.
absl::StatusOr<std::string> EncodeValue(const Value& value, uint64_t length_max = kValueLengthMax);
// Input is hostile: InvalidArgument for truncation, trailing bytes, an unknown tag, nesting deeper than 64, a
// count or length beyond the bytes left, keys out of order or twice, text that is not UTF-8, an array whose
// data does not match dtype and shape.
absl::StatusOr<Value> DecodeValue(std::string_view bytes);

}  // namespace monarch
