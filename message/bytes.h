#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/ids.h"

namespace monarch {

// Integers and ids as they stand on the wire. Memory needs no alignment.
static_assert(std::endian::native == std::endian::little, "the wire is little endian and copied as it is");

template <typename T>
T LoadLe(const void* from) {
  static_assert(std::is_arithmetic_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
void StoreLe(void* to, std::type_identity_t<T> value) {
  static_assert(std::is_arithmetic_v<T>);
  std::memcpy(to, &value, sizeof(value));
}

template <typename T>
void AppendLe(std::string* out, std::type_identity_t<T> value) {
  char bytes[sizeof(T)];
  StoreLe<T>(bytes, value);
  out->append(bytes, sizeof(bytes));
}

inline constexpr size_t kIdBytes = 16;

// An id's bytes are in the order of its hex digits, so that a dump of a packet can be searched for one.
inline Id128 LoadId(const void* from) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  return Id128{__builtin_bswap64(LoadLe<uint64_t>(bytes)), __builtin_bswap64(LoadLe<uint64_t>(bytes + 8))};
}

inline void StoreId(void* to, const Id128& id) {
  auto* bytes = static_cast<uint8_t*>(to);
  StoreLe<uint64_t>(bytes, __builtin_bswap64(id.high));
  StoreLe<uint64_t>(bytes + 8, __builtin_bswap64(id.low));
}

}  // namespace monarch
