#include "message/value.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

// The format counts an array's dimensions in one byte.
constexpr size_t kDimensionsMax = 255;

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

absl::Status Unencodable(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("value: ", what));
}

// The bytes that an array of this shape has; none if no number of 64 bits is that large.
std::optional<uint64_t> ArrayBytes(size_t item_bytes, const std::vector<uint64_t>& shape) {
  bool overflow = false;
  uint64_t bytes = item_bytes;
  for (const uint64_t size : shape) overflow |= __builtin_mul_overflow(bytes, size, &bytes);
  return overflow ? std::nullopt : std::optional(bytes);
}

// Threading: confined to its caller.
class Encoder {
 public:
  explicit Encoder(uint64_t length_max) : length_max_(length_max) {}

  absl::Status Append(const Value& value, int depth);
  std::string Take() { return std::move(out_); }

 private:
  absl::Status AppendLength(Value::Type type, size_t length) {
    if (length > length_max_) {
      const bool counts_bytes = type == Value::Type::kString || type == Value::Type::kBytes;
      return Unencodable(absl::StrCat(TypeName(type), " of ", length, counts_bytes ? " bytes" : " elements",
                                      ", at most ", length_max_));
    }
    AppendLe<uint32_t>(&out_, static_cast<uint32_t>(length));
    return absl::OkStatus();
  }

  absl::Status AppendText(const std::string& text) {
    MONARCH_RETURN_IF_ERROR(AppendLength(Value::Type::kString, text.size()));
    if (!IsUtf8(text)) return Unencodable("text that is not UTF-8");
    out_.append(text);
    return absl::OkStatus();
  }

  absl::Status AppendList(const Value::List& list, int depth);
  absl::Status AppendMap(const Value::Map& map, int depth);
  absl::Status AppendArray(const Value::Array& array);

  const uint64_t length_max_;
  std::string out_;
};

absl::Status Encoder::AppendList(const Value::List& list, int depth) {
  if (depth > kValueDepthMax) return Unencodable(absl::StrCat("nested deeper than ", kValueDepthMax));
  MONARCH_RETURN_IF_ERROR(AppendLength(Value::Type::kList, list.size()));
  for (const Value& element : list) MONARCH_RETURN_IF_ERROR(Append(element, depth));
  return absl::OkStatus();
}

absl::Status Encoder::AppendMap(const Value::Map& map, int depth) {
  if (depth > kValueDepthMax) return Unencodable(absl::StrCat("nested deeper than ", kValueDepthMax));
  MONARCH_RETURN_IF_ERROR(AppendLength(Value::Type::kMap, map.size()));
  // std::map's order is the wire's: std::string compares as unsigned bytes.
  for (const auto& [key, element] : map) {
    MONARCH_RETURN_IF_ERROR(AppendText(key));
    MONARCH_RETURN_IF_ERROR(Append(element, depth));
  }
  return absl::OkStatus();
}

absl::Status Encoder::AppendArray(const Value::Array& array) {
  const size_t item_bytes = ItemBytes(array.dtype);
  if (item_bytes == 0) return Unencodable("unknown dtype");
  if (array.shape.size() > kDimensionsMax) {
    return Unencodable(
        absl::StrCat("array of ", array.shape.size(), " dimensions, at most ", kDimensionsMax));
  }
  if (ArrayBytes(item_bytes, array.shape) != array.data.size()) {
    return Unencodable("array data does not match its shape");
  }
  out_.push_back(static_cast<char>(array.dtype.size()));
  out_.append(array.dtype);
  out_.push_back(static_cast<char>(array.shape.size()));
  for (const uint64_t size : array.shape) AppendLe<uint64_t>(&out_, size);
  AppendLe<uint64_t>(&out_, array.data.size());
  out_.append(array.data);
  return absl::OkStatus();
}

absl::Status Encoder::Append(const Value& value, int depth) {
  switch (value.type()) {
    case Value::Type::kNil:
      out_.push_back(kTagNil);
      return absl::OkStatus();
    case Value::Type::kBool:
      out_.push_back(*value.AsBool() ? kTagTrue : kTagFalse);
      return absl::OkStatus();
    case Value::Type::kInt:
      out_.push_back(kTagInt);
      AppendLe<int64_t>(&out_, *value.AsInt());
      return absl::OkStatus();
    case Value::Type::kFloat:
      out_.push_back(kTagFloat);
      AppendLe<double>(&out_, *value.AsFloat());
      return absl::OkStatus();
    case Value::Type::kString:
      out_.push_back(kTagText);
      return AppendText(*value.string());
    case Value::Type::kBytes:
      out_.push_back(kTagBytes);
      MONARCH_RETURN_IF_ERROR(AppendLength(Value::Type::kBytes, value.bytes()->data.size()));
      out_.append(value.bytes()->data);
      return absl::OkStatus();
    case Value::Type::kList:
      out_.push_back(kTagList);
      return AppendList(*value.list(), depth + 1);
    case Value::Type::kMap:
      out_.push_back(kTagMap);
      return AppendMap(*value.map(), depth + 1);
    case Value::Type::kArray:
      out_.push_back(kTagArray);
      return AppendArray(*value.array());
  }
  return Unencodable("unknown type");
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
  if (depth > kValueDepthMax) return Bad("nested too deep");
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
  if (depth > kValueDepthMax) return Bad("nested too deep");
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
  for (size_t i = 0; i < dimensions; ++i) {
    array.shape.push_back(LoadLe<uint64_t>(sizes.data() + i * sizeof(uint64_t)));
  }

  MONARCH_ASSIGN_OR_RETURN(const uint64_t length, TakeLe<uint64_t>());
  if (ArrayBytes(item_bytes, array.shape) != length) return Bad("array data does not match its shape");
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

absl::StatusOr<std::string> EncodeValue(const Value& value, uint64_t length_max) {
  Encoder encoder(length_max);
  MONARCH_RETURN_IF_ERROR(encoder.Append(value, 0));
  return encoder.Take();
}

absl::StatusOr<Value> DecodeValue(std::string_view bytes) { return Decoder(bytes).DecodeAll(); }

}  // namespace monarch
