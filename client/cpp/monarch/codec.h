#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/value.h"

namespace monarch {

// How a C++ type travels as a Value: arguments, results, constructor arguments. Specialise it for own types
// with the same two functions. From() is given what another program sent: InvalidArgument unless it fits
// exactly.
template <typename T>
struct Codec;

template <>
struct Codec<Value> {
  static Value To(Value value) { return value; }
  static absl::StatusOr<Value> From(const Value& value) { return value; }
};

template <>
struct Codec<bool> {
  static Value To(bool value) { return value; }
  static absl::StatusOr<bool> From(const Value& value) { return value.AsBool(); }
};

// An unsigned 64-bit integer travels as its bit pattern: one above the maximum of int64_t shows as negative
// in Python.
template <std::integral T>
requires(!std::same_as<T, bool>) struct Codec<T> {
  static Value To(T value) { return static_cast<int64_t>(value); }
  static absl::StatusOr<T> From(const Value& value) {
    MONARCH_ASSIGN_OR_RETURN(const int64_t number, value.AsInt());
    if constexpr (sizeof(T) < sizeof(int64_t)) {
      if (number < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
          number > static_cast<int64_t>(std::numeric_limits<T>::max())) {
        return absl::InvalidArgumentError(
            absl::StrCat(number, " does not fit into ", sizeof(T) * 8, " bits"));
      }
    }
    return static_cast<T>(number);
  }
};

template <std::floating_point T>
struct Codec<T> {
  static Value To(T value) { return static_cast<double>(value); }
  static absl::StatusOr<T> From(const Value& value) {
    MONARCH_ASSIGN_OR_RETURN(const double number, value.AsFloat());
    if (std::isfinite(number) && std::abs(number) > static_cast<double>(std::numeric_limits<T>::max())) {
      return absl::InvalidArgumentError(absl::StrCat(number, " does not fit into ", sizeof(T) * 8, " bits"));
    }
    return static_cast<T>(number);
  }
};

template <>
struct Codec<std::string> {
  static Value To(std::string value) { return value; }
  static absl::StatusOr<std::string> From(const Value& value) { return value.AsString(); }
};

// Literals, as arguments only.
template <>
struct Codec<const char*> {
  static Value To(const char* value) { return value; }
};

template <>
struct Codec<Value::Bytes> {
  static Value To(Value::Bytes value) { return value; }
  static absl::StatusOr<Value::Bytes> From(const Value& value) {
    MONARCH_ASSIGN_OR_RETURN(std::string data, value.AsBytes());
    return Value::Bytes{std::move(data)};
  }
};

template <>
struct Codec<Value::Array> {
  static Value To(Value::Array value) { return value; }
  static absl::StatusOr<Value::Array> From(const Value& value) {
    if (value.array() == nullptr) return absl::InvalidArgumentError("expected an array");
    return *value.array();
  }
};

template <typename T>
struct Codec<std::vector<T>> {
  static Value To(const std::vector<T>& values) {
    Value::List list;
    list.reserve(values.size());
    for (const T& value : values) list.push_back(Codec<T>::To(value));
    return list;
  }
  static absl::StatusOr<std::vector<T>> From(const Value& value) {
    if (value.list() == nullptr) return absl::InvalidArgumentError("expected a list");
    std::vector<T> out;
    out.reserve(value.list()->size());
    for (const Value& element : *value.list()) {
      MONARCH_ASSIGN_OR_RETURN(T decoded, Codec<T>::From(element));
      out.push_back(std::move(decoded));
    }
    return out;
  }
};

template <typename T>
struct Codec<std::map<std::string, T>> {
  static Value To(const std::map<std::string, T>& values) {
    Value::Map map;
    for (const auto& [key, value] : values) map.emplace(key, Codec<T>::To(value));
    return map;
  }
  static absl::StatusOr<std::map<std::string, T>> From(const Value& value) {
    if (value.map() == nullptr) return absl::InvalidArgumentError("expected a map");
    std::map<std::string, T> out;
    for (const auto& [key, element] : *value.map()) {
      MONARCH_ASSIGN_OR_RETURN(T decoded, Codec<T>::From(element));
      out.emplace(key, std::move(decoded));
    }
    return out;
  }
};

// The arguments of one call, as a list.
template <typename... Args>
Value EncodeArgs(Args&&... args) {
  Value::List list;
  (list.push_back(Codec<std::decay_t<Args>>::To(std::forward<Args>(args))), ...);
  return list;
}

namespace internal {

template <typename... Args, size_t... I>
absl::StatusOr<std::tuple<Args...>> DecodeEach([[maybe_unused]] const Value::List& list,
                                               std::index_sequence<I...>) {
  std::tuple<absl::StatusOr<Args>...> decoded{Codec<Args>::From(list[I])...};
  absl::Status status;
  [[maybe_unused]] const auto check = [&status](size_t position, const absl::Status& one) {
    if (!status.ok() || one.ok()) return;
    status = absl::InvalidArgumentError(absl::StrCat("argument ", position, ": ", one.message()));
  };
  (check(I, std::get<I>(decoded).status()), ...);
  if (!status.ok()) return status;
  return std::tuple<Args...>{*std::get<I>(std::move(decoded))...};
}

}  // namespace internal

// InvalidArgument, naming the argument's position, unless `list` holds exactly these types.
template <typename... Args>
absl::StatusOr<std::tuple<Args...>> DecodeArgs(const Value::List& list) {
  if (list.size() != sizeof...(Args)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", sizeof...(Args), " arguments, got ", list.size()));
  }
  return internal::DecodeEach<Args...>(list, std::index_sequence_for<Args...>());
}

}  // namespace monarch
