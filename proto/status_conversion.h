#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/monarch/v1/common.pb.h"

namespace monarch {

// The only conversion between the two; codes have the same numbers. A detail set by SetErrorDetail travels as
// the gRPC status' binary details.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Attaches `detail` to a status that is not OK.
void SetErrorDetail(const v1::ErrorDetail& detail, absl::Status* status);
// NotFound if the status has none, InvalidArgument if it does not parse.
absl::StatusOr<v1::ErrorDetail> GetErrorDetail(const absl::Status& status);

}  // namespace monarch
