#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/monarch/v1/admin.pb.h"

namespace monarch {

// The file in which a private daemon's failures outlive it: beside its run directory, named with this prefix
// and the directory's name.
inline constexpr std::string_view kFailureFilePrefix = "failures-";
inline constexpr size_t kFailureFileBytesMax = 1 << 20;

// A line "monarch failures 1 <checksum, hex>", then the message: as many of the first failures as fit.
std::string EncodeFailureFile(v1::GetFailuresResponse failures);
// InvalidArgument: it is no such file, not whole, or of another version.
absl::StatusOr<v1::GetFailuresResponse> DecodeFailureFile(std::string_view text);

}  // namespace monarch
