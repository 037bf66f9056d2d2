#include "proto/id_conversion.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr size_t kIdBytes = 16;

void AppendBigEndian(uint64_t word, std::string* out) {
  for (int shift = 56; shift >= 0; shift -= 8) out->push_back(static_cast<char>(word >> shift));
}

uint64_t ReadBigEndian(const char* bytes) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

}  // namespace

std::string ToProtoBytes(const Id128& id) {
  std::string bytes;
  bytes.reserve(kIdBytes);
  AppendBigEndian(id.high, &bytes);
  AppendBigEndian(id.low, &bytes);
  return bytes;
}

absl::StatusOr<Id128> Id128FromProtoBytes(const std::string& bytes) {
  if (bytes.size() != kIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("parse id: ", bytes.size(), " bytes, expected ", kIdBytes));
  }
  return Id128{ReadBigEndian(bytes.data()), ReadBigEndian(bytes.data() + 8)};
}

v1::ProcAddress ToProto(const ProcAddress& address) {
  v1::ProcAddress out;
  out.set_host(ToProtoBytes(address.host));
  out.set_proc(address.proc);
  out.set_incarnation(address.incarnation);
  return out;
}

v1::ActorAddress ToProto(const ActorAddress& address) {
  v1::ActorAddress out;
  *out.mutable_proc() = ToProto(address.proc);
  out.set_actor(address.actor);
  return out;
}

absl::StatusOr<ProcAddress> FromProto(const v1::ProcAddress& address) {
  MONARCH_ASSIGN_OR_RETURN(const Id128 host, Id128FromProtoBytes(address.host()));
  return ProcAddress{HostId(host), address.proc(), address.incarnation()};
}

absl::StatusOr<ActorAddress> FromProto(const v1::ActorAddress& address) {
  MONARCH_ASSIGN_OR_RETURN(const ProcAddress proc, FromProto(address.proc()));
  return ActorAddress{proc, address.actor()};
}

}  // namespace monarch
