#include "base/check.h"
#include "message/control_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  const auto message = DecodeControl(packet);
  if (!message.ok()) {
    MONARCH_CHECK(message.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  MONARCH_CHECK(!IsFramePacket(packet));
  MONARCH_CHECK(*EncodeControl(*message) == packet);
  const Value& peer = message->body["peer"];
  if (const auto proc = ProcAddressFromValue(peer); proc.ok()) MONARCH_CHECK(ToValue(*proc) == peer);
  if (const auto actor = ActorAddressFromValue(peer); actor.ok()) MONARCH_CHECK(ToValue(*actor) == peer);
  return 0;
}
