#pragma once

#include <grpcpp/client_context.h>

#include "base/ids.h"

namespace monarch {

// The metadata of each request on the control plane that says in whose name it is made: the token's hex
// digits. Without it a request may only list.
inline constexpr char kControlTokenKey[] = "monarch-token";

inline void AddControlToken(const StartToken& token, grpc::ClientContext* context) {
  context->AddMetadata(kControlTokenKey, token.ToHex());
}

}  // namespace monarch
