#include "base/check.h"
#include "daemon/launcher/launcher_messages.h"
#include "message/control_message.h"

namespace monarch {
namespace {

// What a parser takes, it writes, and takes again unchanged.
template <typename T>
void RoundTrip(const absl::StatusOr<T>& parsed, absl::StatusOr<T> (*parse)(const Value& body)) {
  if (!parsed.ok()) {
    MONARCH_CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  const Value body = ToBody(*parsed);
  const absl::StatusOr<T> again = parse(body);
  MONARCH_CHECK(again.ok());
  MONARCH_CHECK(ToBody(*again) == body);
}

}  // namespace
}  // namespace monarch

// A control message; its body goes to every parser, whatever its type: each takes any body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  const auto message = DecodeControl({reinterpret_cast<const char*>(data), size});
  if (!message.ok()) return 0;
  RoundTrip(ParseLauncherSetup(message->body), &ParseLauncherSetup);
  RoundTrip(ParseLaunchRequest(message->body), &ParseLaunchRequest);
  RoundTrip(ParseLaunchFailure(message->body), &ParseLaunchFailure);
  RoundTrip(ParseWorkerDying(message->body), &ParseWorkerDying);
  RoundTrip(ParseWorkerExit(message->body), &ParseWorkerExit);
  RoundTrip(ParseWorkerBoot(message->body), &ParseWorkerBoot);
  RoundTrip(ParseRingNotice(message->body), &ParseRingNotice);
  return 0;
}
