#include "proto/status_conversion.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "base/check.h"

namespace monarch {
namespace {

constexpr char kDetailUrl[] = "type.monarch/monarch.v1.ErrorDetail";

static_assert(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED) ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));
static_assert(static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED) ==
              static_cast<int>(absl::StatusCode::kResourceExhausted));

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::optional<absl::Cord> detail = status.GetPayload(kDetailUrl);
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message()),
                      detail ? std::string(*detail) : std::string());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (!status.error_details().empty()) out.SetPayload(kDetailUrl, absl::Cord(status.error_details()));
  return out;
}

void SetErrorDetail(const v1::ErrorDetail& detail, absl::Status* status) {
  MONARCH_CHECK(!status->ok());
  status->SetPayload(kDetailUrl, absl::Cord(detail.SerializeAsString()));
}

absl::StatusOr<v1::ErrorDetail> GetErrorDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> bytes = status.GetPayload(kDetailUrl);
  if (!bytes) return absl::NotFoundError("read error detail: the status has none");
  v1::ErrorDetail detail;
  if (!detail.ParseFromString(std::string(*bytes))) {
    return absl::InvalidArgumentError("read error detail: not an ErrorDetail message");
  }
  return detail;
}

}  // namespace monarch
