#include "base/check.h"
#include "message/control_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  const auto event = DecodeFailureEvent({reinterpret_cast<const char*>(data), size});
  if (!event.ok()) {
    MONARCH_CHECK(event.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  // Defaults may have been spelled out in the input; they are not in the output.
  const std::string bytes = EncodeFailureEvent(*event);
  const auto again = DecodeFailureEvent(bytes);
  MONARCH_CHECK(again.ok());
  MONARCH_CHECK(EncodeFailureEvent(*again) == bytes);
  MONARCH_CHECK(!event->Report().empty());
  return 0;
}
