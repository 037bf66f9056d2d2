#include "message/control_message.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "message/bytes.h"

namespace monarch {
namespace {

constexpr std::string_view kControlMagic = "MNC1";
constexpr std::string_view kFrameMagic = "MNF1";

constexpr size_t kTypeAt = 4;
constexpr size_t kReservedAt = 6;
constexpr size_t kRequestAt = 8;
constexpr size_t kBodyLengthAt = 12;
constexpr size_t kHeadBytes = 16;

bool IsKnownType(uint16_t type) {
  switch (static_cast<ControlType>(type)) {
    case ControlType::kHello:
    case ControlType::kWelcome:
    case ControlType::kRefused:
    case ControlType::kOpenControl:
    case ControlType::kOk:
    case ControlType::kConnect:
    case ControlType::kIntroduce:
    case ControlType::kUnreachable:
    case ControlType::kActorUp:
    case ControlType::kActorDown:
    case ControlType::kProcDead:
    case ControlType::kProcDetail:
    case ControlType::kStop:
    case ControlType::kReady:
    case ControlType::kGoodbye:
    case ControlType::kUndelivered:
    case ControlType::kRelayPause:
    case ControlType::kRelayResume:
    case ControlType::kSetup:
    case ControlType::kLaunch:
    case ControlType::kLaunched:
    case ControlType::kLaunchFailed:
    case ControlType::kDying:
    case ControlType::kExited:
    case ControlType::kSignal:
    case ControlType::kEndSession:
    case ControlType::kSessionGone:
    case ControlType::kDoorbell:
    case ControlType::kLink:
    case ControlType::kStopping:
    case ControlType::kKeep:
    case ControlType::kForget:
    case ControlType::kResume:
    case ControlType::kBoot:
    case ControlType::kLifeline:
    case ControlType::kRelayed:
    case ControlType::kAskInterpreter:
    case ControlType::kHandlerEnded:
    case ControlType::kHung:
    case ControlType::kPeerHello:
    case ControlType::kPeerWelcome:
    case ControlType::kFrameBegin:
    case ControlType::kToProc:
    case ControlType::kProcUp:
    case ControlType::kBeat:
      return true;
    case ControlType::kUnspecified:
      break;
  }
  return false;
}

absl::Status Bad(absl::string_view what, uint64_t found) {
  return absl::InvalidArgumentError(absl::StrCat("control message: ", what, ": ", found));
}

Value::List AddressList(const ProcAddress& address) {
  return {ToValue(address.host), Value(address.proc), Value(address.incarnation)};
}

absl::StatusOr<ProcAddress> ProcAddressFromList(const Value::List& list) {
  ProcAddress address;
  MONARCH_ASSIGN_OR_RETURN(Id128 host, Id128FromValue(list[0]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t proc, list[1].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const int64_t incarnation, list[2].AsInt());
  if (incarnation < 0 || incarnation > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("address: incarnation out of range: ", incarnation));
  }
  address.host = HostId(host);
  address.proc = static_cast<uint64_t>(proc);
  address.incarnation = static_cast<uint32_t>(incarnation);
  return address;
}

}  // namespace

absl::StatusOr<std::string> EncodeControl(const ControlMessage& message) {
  MONARCH_CHECK(message.body.is_nil() || message.body.map() != nullptr);
  MONARCH_ASSIGN_OR_RETURN(const std::string body,
                           EncodeValue(message.body.is_nil() ? Value(Value::Map()) : message.body));
  if (body.size() > std::numeric_limits<uint32_t>::max()) return Bad("body too large, bytes", body.size());
  std::string out;
  out.reserve(kHeadBytes + body.size());
  out += kControlMagic;
  AppendLe<uint16_t>(&out, static_cast<uint16_t>(message.type));
  AppendLe<uint16_t>(&out, 0);
  AppendLe<uint32_t>(&out, message.request);
  AppendLe<uint32_t>(&out, static_cast<uint32_t>(body.size()));
  out += body;
  return out;
}

absl::StatusOr<ControlMessage> DecodeControl(std::string_view packet) {
  if (packet.size() < kHeadBytes) return Bad("truncated, bytes", packet.size());
  const char* head = packet.data();
  if (packet.substr(0, kControlMagic.size()) != kControlMagic)
    return Bad("wrong magic", LoadLe<uint32_t>(head));
  const auto type = LoadLe<uint16_t>(head + kTypeAt);
  if (!IsKnownType(type)) return Bad("unknown type", type);
  const auto reserved = LoadLe<uint16_t>(head + kReservedAt);
  if (reserved != 0) return Bad("reserved bytes are not 0", reserved);
  const auto body_length = LoadLe<uint32_t>(head + kBodyLengthAt);
  if (body_length != packet.size() - kHeadBytes)
    return Bad("body length does not match the packet", body_length);

  ControlMessage message;
  message.type = static_cast<ControlType>(type);
  message.request = LoadLe<uint32_t>(head + kRequestAt);
  MONARCH_ASSIGN_OR_RETURN(message.body, DecodeValue(packet.substr(kHeadBytes)));
  if (message.body.map() == nullptr) return Bad("body is not a map, type", type);
  return message;
}

bool IsFramePacket(std::string_view packet) { return packet.substr(0, kFrameMagic.size()) == kFrameMagic; }

Value ToValue(const Id128& id) {
  Value::Bytes bytes;
  bytes.data.resize(kIdBytes);
  StoreId(bytes.data.data(), id);
  return bytes;
}

absl::StatusOr<Id128> Id128FromValue(const Value& value) {
  const Value::Bytes* bytes = value.bytes();
  if (bytes == nullptr || bytes->data.size() != kIdBytes) {
    return absl::InvalidArgumentError("id: wanted 16 bytes");
  }
  return LoadId(bytes->data.data());
}

Value ToValue(const ProcAddress& address) { return AddressList(address); }

Value ToValue(const ActorAddress& address) {
  Value::List list = AddressList(address.proc);
  list.push_back(Value(address.actor));
  return list;
}

absl::StatusOr<ProcAddress> ProcAddressFromValue(const Value& value) {
  const Value::List* list = value.list();
  if (list == nullptr || list->size() != 3) {
    return absl::InvalidArgumentError("proc address: wanted a list of 3");
  }
  return ProcAddressFromList(*list);
}

absl::StatusOr<ActorAddress> ActorAddressFromValue(const Value& value) {
  const Value::List* list = value.list();
  if (list == nullptr || list->size() != 4) {
    return absl::InvalidArgumentError("actor address: wanted a list of 4");
  }
  ActorAddress address;
  MONARCH_ASSIGN_OR_RETURN(address.proc, ProcAddressFromList(*list));
  MONARCH_ASSIGN_OR_RETURN(const int64_t actor, (*list)[3].AsInt());
  address.actor = static_cast<uint64_t>(actor);
  return address;
}

}  // namespace monarch
