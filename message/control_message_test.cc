#include "message/control_message.h"

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"
#include "message/bytes.h"

namespace monarch {
namespace {

const ProcAddress kProc = {HostId({0x1011121314151617, 0x18191a1b1c1d1e1f}), 7, 2};

ControlMessage Sample() {
  return {ControlType::kIntroduce, 5, Value::Map{{"peer", ToValue(kProc)}, {"mode", "ring"}}};
}

const char* const kSampleHex =
    "4d4e433107000000050000004a0000000802000000040000006d6f6465050400000072696e6704000000706565720703"
    "0000000610000000101112131415161718191a1b1c1d1e1f030700000000000000030200000000000000";

void CheckRefused(const std::string& packet) {
  const auto message = DecodeControl(packet);
  REQUIRE_FALSE(message.ok());
  CHECK(message.status().code() == absl::StatusCode::kInvalidArgument);
}

std::string With(size_t at, uint8_t byte) {
  std::string packet = *EncodeControl(Sample());
  packet[at] = static_cast<char>(byte);
  return packet;
}

std::string WithBody(const std::string& body) {
  std::string packet = "MNC1";
  AppendLe<uint16_t>(&packet, 7);
  AppendLe<uint16_t>(&packet, 0);
  AppendLe<uint32_t>(&packet, 5);
  AppendLe<uint32_t>(&packet, body.size());
  return packet + body;
}

TEST_CASE("ControlBytesAreGolden") {
  CHECK(absl::BytesToHexString(*EncodeControl(Sample())) == kSampleHex);
  const auto message = DecodeControl(absl::HexStringToBytes(kSampleHex));
  REQUIRE(message.ok());
  CHECK(message->type == ControlType::kIntroduce);
  CHECK(message->request == 5);
  CHECK(message->body == Sample().body);
}

TEST_CASE("ControlNilBodyIsAnEmptyMap") {
  const auto message = DecodeControl(*EncodeControl({ControlType::kReady, 0, Value()}));
  REQUIRE(message.ok());
  CHECK(message->type == ControlType::kReady);
  CHECK(message->body == Value(Value::Map()));
}

TEST_CASE("ControlRefusesEveryTruncation") {
  const std::string packet = *EncodeControl(Sample());
  for (size_t size = 0; size < packet.size(); ++size) CheckRefused(packet.substr(0, size));
}

TEST_CASE("ControlRefusesBadHeads") {
  CheckRefused(With(0, 'X'));
  CheckRefused(With(3, '2'));  // another version's magic
  CheckRefused(With(6, 1));    // reserved
  CheckRefused(With(12, 0));   // body shorter than the packet
  CheckRefused(With(15, 0xFF));
  CheckRefused(*EncodeControl(Sample()) + '\0');
}

TEST_CASE("ControlRefusesUnknownTypes") {
  int known = 0;
  for (int type = 0; type < 65536; ++type) {
    std::string packet = *EncodeControl({static_cast<ControlType>(type), 0, Value()});
    known += DecodeControl(packet).ok() ? 1 : 0;
  }
  CHECK(known == 45);
}

TEST_CASE("ControlRefusesBodiesThatAreNoMap") {
  CHECK(DecodeControl(WithBody(*EncodeValue(Value::Map()))).ok());
  CheckRefused(WithBody(*EncodeValue(Value())));
  CheckRefused(WithBody(*EncodeValue(Value::List())));
  CheckRefused(WithBody(""));
  CheckRefused(WithBody(*EncodeValue(Value::Map()) + '\0'));
}

TEST_CASE("ControlPacketsAndFramesAreToldApart") {
  CHECK(IsFramePacket("MNF1 and more"));
  CHECK_FALSE(IsFramePacket("MNF"));
  CHECK_FALSE(IsFramePacket(""));
  CHECK_FALSE(IsFramePacket(*EncodeControl(Sample())));
}

TEST_CASE("AddressesRoundTripAsValues") {
  CHECK(*ProcAddressFromValue(ToValue(kProc)) == kProc);
  const ActorAddress actor = {kProc, 0xFFFFFFFFFFFFFFFF};
  CHECK(*ActorAddressFromValue(ToValue(actor)) == actor);
  CHECK(*Id128FromValue(ToValue(kProc.host)) == kProc.host);
}

TEST_CASE("AddressesThatAreNoneAreRefused") {
  const Value host = ToValue(kProc.host);
  CHECK_FALSE(ProcAddressFromValue(Value()).ok());
  CHECK_FALSE(ProcAddressFromValue(Value::List{host, 7}).ok());
  CHECK_FALSE(ProcAddressFromValue(Value::List{host, 7, -1}).ok());
  CHECK_FALSE(ProcAddressFromValue(Value::List{host, 7, int64_t{1} << 32}).ok());
  CHECK_FALSE(ProcAddressFromValue(Value::List{host, "7", 1}).ok());
  CHECK_FALSE(ProcAddressFromValue(Value::List{Value::Bytes{"short"}, 7, 1}).ok());
  CHECK_FALSE(ProcAddressFromValue(Value::List{"0123456789abcdef", 7, 1}).ok());
  CHECK_FALSE(ProcAddressFromValue(ToValue(ActorAddress{kProc, 1})).ok());
  CHECK_FALSE(ActorAddressFromValue(ToValue(kProc)).ok());
  CHECK_FALSE(ActorAddressFromValue(Value::List{host, 7, 1, "a"}).ok());
  CHECK_FALSE(Id128FromValue(Value::Bytes{std::string(17, 'x')}).ok());
}

}  // namespace
}  // namespace monarch
