#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "message/value.h"

namespace monarch {

// Version of the files' layout; what the value holds is its user's business. Files of later versions are
// refused, not guessed at.
inline constexpr uint32_t kStateVersion = 1;

// magic, version, length and checksum of what follows, then the encoded value. DecodeState takes any bytes.
// DataLoss: not such a file, truncated, or damaged. FailedPrecondition: of another version; both are named.
absl::StatusOr<std::string> EncodeState(const Value& value);
absl::StatusOr<Value> DecodeState(std::string_view bytes);

// All or nothing, also over a power cut: a file beside it, synced, takes its name.
absl::Status WriteStateFile(const std::string& path, const Value& value);
// NotFound. PermissionDenied: it is not this user's alone (owner, mode, a link). Else as DecodeState.
absl::StatusOr<Value> ReadStateFile(const std::string& path);

}  // namespace monarch
