#include "client/cpp/ctl/daemon_query.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "client/cpp/ctl/daemon_channel.h"
#include "client/cpp/ctl/exit_code.h"
#include "proto/monarch/v1/admin.grpc.pb.h"

namespace monarch::ctl {
namespace {

template <typename Response>
struct Call {
  grpc::ClientContext context;
  grpc::Status status;
  Response response;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
};

// The calls to one daemon.
struct Conversation {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::AdminService::Stub> stub;
  Call<v1::GetStatusResponse> status;
  Call<v1::GetTreeResponse> tree;
  Call<v1::GetFailuresResponse> failures;
};

}  // namespace

std::vector<Snapshot> QueryDaemons(const std::vector<DaemonPlace>& places, const QueryOptions& options) {
  const gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(options.timeout), GPR_TIMESPAN));
  grpc::CompletionQueue queue;
  std::vector<Conversation> conversations(places.size());
  int open = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    Conversation& with = conversations[i];
    with.channel = OpenChannel(places[i]);
    with.stub = v1::AdminService::NewStub(with.channel);
    with.status.context.set_deadline(deadline);
    with.status.reader = with.stub->AsyncGetStatus(&with.status.context, {}, &queue);
    with.status.reader->Finish(&with.status.response, &with.status.status, &with.status);
    ++open;
    if (options.with_tree) {
      with.tree.context.set_deadline(deadline);
      with.tree.reader = with.stub->AsyncGetTree(&with.tree.context, {}, &queue);
      with.tree.reader->Finish(&with.tree.response, &with.tree.status, &with.tree);
      ++open;
    }
    if (options.with_failures) {
      with.failures.context.set_deadline(deadline);
      with.failures.reader = with.stub->AsyncGetFailures(&with.failures.context, {}, &queue);
      with.failures.reader->Finish(&with.failures.response, &with.failures.status, &with.failures);
      ++open;
    }
  }
  void* tag = nullptr;
  bool ok = false;
  for (; open > 0 && queue.Next(&tag, &ok); --open) {
  }
  std::vector<Snapshot> snapshots;
  for (size_t i = 0; i < places.size(); ++i) {
    Snapshot snapshot;
    snapshot.place = places[i];
    snapshot.answer = CallStatus(conversations[i].status.status, options.timeout);
    if (snapshot.answer.ok()) snapshot.answer = CallStatus(conversations[i].tree.status, options.timeout);
    if (snapshot.answer.ok()) snapshot.answer = CallStatus(conversations[i].failures.status, options.timeout);
    if (snapshot.answer.ok()) {
      snapshot.status = std::move(conversations[i].status.response);
      snapshot.tree = std::move(conversations[i].tree.response);
      snapshot.failures = std::move(conversations[i].failures.response);
    }
    snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

int ExitCodeFor(const std::vector<Snapshot>& snapshots) {
  if (snapshots.empty()) return kExitNothing;
  int code = kExitOk;
  for (const Snapshot& snapshot : snapshots) {
    if (snapshot.answer.ok()) continue;
    if (absl::IsUnavailable(snapshot.answer) || absl::IsDeadlineExceeded(snapshot.answer)) return kExitSilent;
    code = kExitRefused;
  }
  return code;
}

}  // namespace monarch::ctl
