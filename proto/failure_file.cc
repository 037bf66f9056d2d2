#include "proto/failure_file.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace monarch {
namespace {

constexpr std::string_view kHead = "monarch failures 1 ";

// FNV-1a: against what is cut off or overwritten, not against an enemy, who would be this user.
std::string Checksum(std::string_view bytes) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char byte : bytes) sum = (sum ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return absl::StrCat(absl::Hex(sum, absl::kZeroPad16));
}

}  // namespace

std::string EncodeFailureFile(v1::GetFailuresResponse failures) {
  const size_t head_bytes = kHead.size() + 17;
  std::string body = failures.SerializeAsString();
  while (head_bytes + body.size() > kFailureFileBytesMax) {
    failures.mutable_failures()->DeleteSubrange(failures.failures_size() / 2,
                                                failures.failures_size() - failures.failures_size() / 2);
    body = failures.SerializeAsString();
  }
  return absl::StrCat(std::string(kHead), Checksum(body), "\n", body);
}

absl::StatusOr<v1::GetFailuresResponse> DecodeFailureFile(std::string_view text) {
  if (text.size() > kFailureFileBytesMax) return absl::InvalidArgumentError("too large");
  if (text.substr(0, kHead.size()) != kHead)
    return absl::InvalidArgumentError("not a file of failures, version 1");
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return absl::InvalidArgumentError("cut off");
  const std::string_view body = text.substr(end + 1);
  if (text.substr(kHead.size(), end - kHead.size()) != Checksum(body))
    return absl::InvalidArgumentError("damaged");
  v1::GetFailuresResponse failures;
  if (!failures.ParseFromArray(body.data(), static_cast<int>(body.size())))
    return absl::InvalidArgumentError("damaged");
  return failures;
}

}  // namespace monarch
