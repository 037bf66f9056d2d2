#include "daemon/protocol.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace monarch {

absl::Status CheckHello(const Value& body, const std::string& role) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t protocol, body["protocol"].AsInt());
  MONARCH_ASSIGN_OR_RETURN(const std::string version, body["version"].AsString());
  if (protocol != kNativeProtocol) {
    return absl::FailedPreconditionError(
        absl::StrCat("hello: version ", version.substr(0, 64), " of the client library speaks protocol ",
                     protocol, ", monarchd ", kVersion, " speaks protocol ", kNativeProtocol));
  }
  MONARCH_ASSIGN_OR_RETURN(const std::string found, body["role"].AsString());
  if (found != role) return absl::InvalidArgumentError(absl::StrCat("hello: the role must be ", role));
  return absl::OkStatus();
}

}  // namespace monarch
