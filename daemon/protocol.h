#pragma once

#include <string>

#include "absl/status/status.h"
#include "message/value.h"

namespace monarch {

// Version of the native protocol (message/WIRE.md).
inline constexpr int64_t kNativeProtocol = 1;

// Checks the parts of a hello that clients and workers share. FailedPrecondition names both versions when
// they do not speak the same protocol; InvalidArgument: not a hello of that role.
absl::Status CheckHello(const Value& body, const std::string& role);

}  // namespace monarch
