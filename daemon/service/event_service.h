#pragma once

#include "daemon/daemon_context.h"
#include "proto/monarch/v1/event.grpc.pb.h"

namespace monarch {

// Streams the event log.
// Threading: thread-safe (handlers run on gRPC's threads, the log is read on the loop).
class EventService final : public v1::EventService::CallbackService {
 public:
  explicit EventService(DaemonContext* context) : context_(context) {}
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(grpc::CallbackServerContext* context,
                                                     const v1::WatchRequest* request) override;

 private:
  DaemonContext* const context_;
};

}  // namespace monarch
