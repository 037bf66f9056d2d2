#include "message/value.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "message/bytes.h"
#include "message/utf8.h"

namespace monarch {
namespace {

enum Tag : uint8_t {
  kTagNil = 0,
  kTagFalse = 1,
  kTagTrue = 2,
  kTagInt = 3,
  kTagFloat = 4,
  kTagText = 5,
  kTagBytes = 6,
  kTagList = 7,
  kTagMap = 8,
  kTagArray = 9,
};

// Bounds the decoder's recursion; far above what any message of ours nests.
constexpr int kDepthMax = 64;

// Room made before any element is seen. Small, because a count is only a claim: lists within lists could each
// claim all bytes that are left.
constexpr size_t kReservedElementsMax = 8;

absl::string_view TypeName(Value::Type type) {
  switch (type) {
    case Value::Type::kNil:
      return "nil";
    case Value::Type::kBool:
      return "bool";
    case Value::Type::kInt:
      return "int";
    case Value::Type::kFloat:
      return "float";
    case Value::Type::kString:
      return "str";
    case Value::Type::kBytes:
      return "bytes";
    case Value::Type::kList:
      return "list";
    case Value::Type::kMap:
      return "map";
    case Value::Type::kArray:
      return "array";
  }
  return "unknown";
}

absl::Status WrongType(absl::string_view wanted, Value::Type found) {
  return absl::InvalidArgumentError(absl::StrCat("value: wanted ", wanted, ", found ", TypeName(found)));
}

// 0 for what is no dtype.
size_t ItemBytes(std::string_view dtype) {
  for (std::string_view known : {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}) {
    if (dtype == known) return static_cast<size_t>(known[1] - '0');
  }
  return 0;
}

void AppendSized(std::string* out, std::string_view bytes) {
  MONARCH_CHECK(bytes.size() <= std::numeric_limits<uint32_t>::max());
  AppendLe<uint32_t>(out, static_cast<uint32_t>(bytes.size()));
  out->append(bytes);
}

void AppendCount(std::string* out, size_t count) {
  MONARCH_CHECK(count <= std::numeric_limits<uint32_t>::max());
  AppendLe<uint32_t>(out, static_cast<uint32_t>(count));
}

void AppendArray(std::string* out, const Value::Array& array) {
  MONARCH_CHECK(array.dtype.size() <= 255 && array.shape.size() <= 255);
  out->push_back(static_cast<char>(array.dtype.size()));
  out->append(array.dtype);
  out->push_back(static_cast<char>(array.shape.size()));
  for (uint64_t size : array.shape) AppendLe<uint64_t>(out, size);
  AppendLe<uint64_t>(out, array.data.size());
  out->append(array.data);
}

void AppendValue(std::string* out, const Value& value) {
  switch (value.type()) {
    case Value::Type::kNil:
      out->push_back(kTagNil);
      return;
    case Value::Type::kBool:
      out->push_back(*value.AsBool() ? kTagTrue : kTagFalse);
      return;
    case Value::Type::kInt:
      out->push_back(kTagInt);
      AppendLe<int64_t>(out, *value.AsInt());
      return;
    case Value::Type::kFloat:
      out->push_back(kTagFloat);
      AppendLe<double>(out, *value.AsFloat());
      return;
    case Value::Type::kString:
      out->push_back(kTagText);
      AppendSized(out, *value.string());
      return;
    case Value::Type::kBytes:
      out->push_back(kTagBytes);
      AppendSized(out, value.bytes()->data);
      return;
    case Value::Type::kList:
      out->push_back(kTagList);
      AppendCount(out, value.list()->size());
      for (const Value& element : *value.list()) AppendValue(out, element);
      return;
    case Value::Type::kMap:
      out->push_back(kTagMap);
      AppendCount(out, value.map()->size());
      // std::map's order is the wire's: std::string compares as unsigned bytes.
      for (const auto& [key, element] : *value.map()) {
        AppendSized(out, key);
        AppendValue(out, element);
      }
      return;
    case Value::Type::kArray:
      out->push_back(kTagArray);
      AppendArray(out, *value.array());
      return;
  }
}

// Threading: confined to its caller.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : rest_(bytes), size_(bytes.size()) {}

  absl::StatusOr<Value> DecodeAll() {
    MONARCH_ASSIGN_OR_RETURN(Value value, Decode(0));
    if (!rest_.empty()) return Bad("trailing bytes");
    return value;
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("value: ", what, " at byte ", size_ - rest_.size()));
  }

  absl::StatusOr<std::string_view> Take(uint64_t length) {
    if (length > rest_.size()) return Bad("length beyond the end");
    std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> TakeLe() {
    if (sizeof(T) > rest_.size()) return Bad("truncated");
    const T value = LoadLe<T>(rest_.data());
    rest_.remove_prefix(sizeof(T));
    return value;
  }

  absl::StatusOr<std::string_view> TakeSized() {
    MONARCH_ASSIGN_OR_RETURN(const uint32_t length, TakeLe<uint32_t>());
    return Take(length);
  }

  absl::StatusOr<std::string_view> TakeText() {
    MONARCH_ASSIGN_OR_RETURN(std::string_view text, TakeSized());
    if (!IsUtf8(text)) return Bad("text that is not UTF-8");
    return text;
  }

  absl::StatusOr<Value> Decode(int depth);
  absl::StatusOr<Value> DecodeList(int depth);
  absl::StatusOr<Value> DecodeMap(int depth);
  absl::StatusOr<Value> DecodeArray();

  std::string_view rest_;
  size_t size_;
};

absl::StatusOr<Value> Decoder::Decode(int depth) {
  MONARCH_ASSIGN_OR_RETURN(const uint8_t tag, TakeLe<uint8_t>());
  switch (tag) {
    case kTagNil:
      return Value();
    case kTagFalse:
      return Value(false);
    case kTagTrue:
      return Value(true);
    case kTagInt: {
      MONARCH_ASSIGN_OR_RETURN(const int64_t number, TakeLe<int64_t>());
      return Value(number);
    }
    case kTagFloat: {
      MONARCH_ASSIGN_OR_RETURN(const double number, TakeLe<double>());
      return Value(number);
    }
    case kTagText: {
      MONARCH_ASSIGN_OR_RETURN(std::string_view text, TakeText());
      return Value(text);
    }
    case kTagBytes: {
      MONARCH_ASSIGN_OR_RETURN(std::string_view bytes, TakeSized());
      return Value(Value::Bytes{std::string(bytes)});
    }
    case kTagList:
      return DecodeList(depth + 1);
    case kTagMap:
      return DecodeMap(depth + 1);
    case kTagArray:
      return DecodeArray();
    default:
      return Bad("unknown tag");
  }
}

absl::StatusOr<Value> Decoder::DecodeList(int depth) {
  if (depth > kDepthMax) return Bad("nested too deep");
  MONARCH_ASSIGN_OR_RETURN(const uint32_t count, TakeLe<uint32_t>());
  if (count > rest_.size()) return Bad("count beyond the end");
  Value::List list;
  list.reserve(std::min<size_t>(count, kReservedElementsMax));
  for (uint32_t i = 0; i < count; ++i) {
    MONARCH_ASSIGN_OR_RETURN(Value element, Decode(depth));
    list.push_back(std::move(element));
  }
  return Value(std::move(list));
}

absl::StatusOr<Value> Decoder::DecodeMap(int depth) {
  // The smallest entry: an empty key's length and a tag.
  constexpr size_t kEntryBytesMin = 5;
  if (depth > kDepthMax) return Bad("nested too deep");
  MONARCH_ASSIGN_OR_RETURN(const uint32_t count, TakeLe<uint32_t>());
  if (count > rest_.size() / kEntryBytesMin) return Bad("count beyond the end");
  Value::Map map;
  for (uint32_t i = 0; i < count; ++i) {
    MONARCH_ASSIGN_OR_RETURN(std::string_view key, TakeText());
    if (!map.empty() && key <= map.rbegin()->first) return Bad("map key out of order or twice");
    MONARCH_ASSIGN_OR_RETURN(Value element, Decode(depth));
    map.emplace_hint(map.end(), key, std::move(element));
  }
  return Value(std::move(map));
}

absl::StatusOr<Value> Decoder::DecodeArray() {
  Value::Array array;
  MONARCH_ASSIGN_OR_RETURN(const uint8_t dtype_length, TakeLe<uint8_t>());
  MONARCH_ASSIGN_OR_RETURN(std::string_view dtype, Take(dtype_length));
  const size_t item_bytes = ItemBytes(dtype);
  if (item_bytes == 0) return Bad("unknown dtype");
  array.dtype = std::string(dtype);

  MONARCH_ASSIGN_OR_RETURN(const uint8_t dimensions, TakeLe<uint8_t>());
  MONARCH_ASSIGN_OR_RETURN(std::string_view sizes, Take(uint64_t{dimensions} * sizeof(uint64_t)));
  bool overflow = false;
  uint64_t bytes = item_bytes;
  for (size_t i = 0; i < dimensions; ++i) {
    const auto size = LoadLe<uint64_t>(sizes.data() + i * sizeof(uint64_t));
    overflow |= __builtin_mul_overflow(bytes, size, &bytes);
    array.shape.push_back(size);
  }
  if (overflow) return Bad("array shape too large");

  MONARCH_ASSIGN_OR_RETURN(const uint64_t length, TakeLe<uint64_t>());
  if (length != bytes) return Bad("array data does not match its shape");
  MONARCH_ASSIGN_OR_RETURN(std::string_view data, Take(length));
  array.data = std::string(data);
  return Value(std::move(array));
}

}  // namespace

absl::StatusOr<bool> Value::AsBool() const {
  if (const bool* v = std::get_if<bool>(&v_)) return *v;
  return WrongType("bool", type());
}

absl::StatusOr<int64_t> Value::AsInt() const {
  if (const int64_t* v = std::get_if<int64_t>(&v_)) return *v;
  return WrongType("int", type());
}

absl::StatusOr<double> Value::AsFloat() const {
  if (const double* v = std::get_if<double>(&v_)) return *v;
  if (const int64_t* v = std::get_if<int64_t>(&v_)) return static_cast<double>(*v);
  return WrongType("float", type());
}

absl::StatusOr<std::string> Value::AsString() const {
  if (const std::string* v = string()) return *v;
  return WrongType("str", type());
}

absl::StatusOr<std::string> Value::AsBytes() const {
  if (const Bytes* v = bytes()) return v->data;
  return WrongType("bytes", type());
}

const Value& Value::operator[](std::string_view key) const {
  // Never destroyed: what runs at exit may still look up members.
  static const Value& nil = *new Value();
  const Map* members = map();
  if (members == nullptr) return nil;
  auto it = members->find(std::string(key));
  return it == members->end() ? nil : it->second;
}

std::string EncodeValue(const Value& value) {
  std::string out;
  AppendValue(&out, value);
  return out;
}

absl::StatusOr<Value> DecodeValue(std::string_view bytes) { return Decoder(bytes).DecodeAll(); }

}  // namespace monarch
