#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace monarch {

// 128 random bits. Threading: immutable value.
struct Id128 {
  uint64_t high = 0;
  uint64_t low = 0;

  // From the kernel's random source; never zero.
  static Id128 Random();
  // 32 lower-case hex digits; InvalidArgument for anything else.
  static absl::StatusOr<Id128> FromHex(std::string_view hex);
  std::string ToHex() const;
  bool is_zero() const { return high == 0 && low == 0; }
  auto operator<=>(const Id128&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id128& id) {
    return H::combine(std::move(h), id.high, id.low);
  }
};

// Distinct types for ids of the same shape, so that one cannot be passed for another.
template <typename Tag>
struct StrongId128 : Id128 {
  StrongId128() = default;
  explicit StrongId128(Id128 id) : Id128(id) {}
  static StrongId128 Random() { return StrongId128(Id128::Random()); }
  auto operator<=>(const StrongId128&) const = default;
};
using HostId = StrongId128<struct HostIdTag>;          // one running monarchd; new at every boot
using SessionId = StrongId128<struct SessionIdTag>;    // everything one client owns
using StartToken = StrongId128<struct StartTokenTag>;  // what a worker proves itself with, once

// Where a proc is, and which start of it: a restarted proc keeps host and proc and has another incarnation.
struct ProcAddress {
  HostId host;
  uint64_t proc = 0;  // unique on its host; 0 is no proc
  uint32_t incarnation = 0;

  std::string ToString() const;  // "proc 7.1@0123abcd" (host shortened to 8 digits)
  auto operator<=>(const ProcAddress&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ProcAddress& a) {
    return H::combine(std::move(h), static_cast<const Id128&>(a.host), a.proc, a.incarnation);
  }
};

// An actor: its id is unique in its proc. The members of one mesh share one id on their different procs.
struct ActorAddress {
  ProcAddress proc;
  uint64_t actor = 0;

  std::string ToString() const;  // "actor 3 of proc 7.1@0123abcd"
  auto operator<=>(const ActorAddress&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ActorAddress& a) {
    return H::combine(std::move(h), a.proc, a.actor);
  }
};

// Actor ids with a fixed meaning in each proc. Others are counted by the spawning proc from a random number.
inline constexpr uint64_t kAgentActor = 0;  // the runtime itself: creates actors, answers for unknown ones
inline constexpr uint64_t kRootActor = 1;   // in a client: the code outside actors; the root of supervision

}  // namespace monarch
