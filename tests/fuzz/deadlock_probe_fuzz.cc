#include "base/check.h"
#include "client/cpp/runtime/deadlock_probe.h"
#include "message/value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  constexpr size_t kStepsMax = 8;
  const auto probe = DecodeProbe({reinterpret_cast<const char*>(data), size}, kStepsMax);
  if (!probe.ok()) {
    MONARCH_CHECK(probe.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  MONARCH_CHECK(probe->at < probe->path.size() && probe->path.size() <= kStepsMax);
  const auto again = DecodeProbe(*EncodeValue(ToValue(*probe)), kStepsMax);
  MONARCH_CHECK(again.ok() && *again == *probe);
  return 0;
}
