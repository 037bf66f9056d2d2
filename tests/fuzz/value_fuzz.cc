#include "base/check.h"
#include "message/utf8.h"
#include "message/value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  MONARCH_CHECK(IsUtf8(ToUtf8(bytes)));
  const auto value = DecodeValue(bytes);
  if (!value.ok()) {
    MONARCH_CHECK(value.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  // One value, one encoding.
  MONARCH_CHECK(*EncodeValue(*value) == bytes);
  MONARCH_CHECK(IsUtf8(value->ToString()));
  return 0;
}
