#include "client/cpp/ctl/session_stop.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/ctl/daemon_channel.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"
#include "proto/monarch/v1/admin.grpc.pb.h"

namespace monarch::ctl {
namespace {

// For its parts on other hosts, which the daemon waits for, and for the answer.
constexpr absl::Duration kBeyondGrace = absl::Seconds(6);

absl::Duration GraceOf(const v1::GetStatusResponse& status) {
  const auto limit = std::find_if(status.limits().begin(), status.limits().end(),
                                  [](const v1::LimitUse& one) { return one.name() == "stop_grace_ms"; });
  return limit == status.limits().end() ? absl::Seconds(10)
                                        : absl::Milliseconds(static_cast<int64_t>(limit->value()));
}

}  // namespace

absl::StatusOr<FoundSession> FindSession(const std::string& id, const std::vector<Snapshot>& snapshots) {
  std::vector<FoundSession> found;
  for (const Snapshot& snapshot : snapshots) {
    for (const v1::SessionInfo& session : snapshot.tree.sessions()) {
      if (!id.empty() && absl::StartsWith(session.session(), id)) found.push_back({&snapshot, &session});
    }
  }
  if (found.size() == 1) return found.front();
  if (found.empty())
    return absl::NotFoundError(absl::StrCat("no session ", id, " is known; monarchctl sessions lists them"));
  std::string text = absl::StrCat("several sessions begin with ", id, ":");
  for (const FoundSession& one : found) {
    absl::StrAppend(&text, "\n  ", Printable(one.session->session()), "  ", Printable(one.session->name()),
                    " (client pid ", one.session->client_pid(), ")");
  }
  return absl::InvalidArgumentError(text);
}

absl::StatusOr<v1::StopSessionResponse> StopSession(const FoundSession& found, absl::Duration grace) {
  const absl::Duration timeout =
      (grace > absl::ZeroDuration() ? grace : GraceOf(found.daemon->status)) + kBeyondGrace;
  v1::StopSessionRequest request;
  request.set_session(found.session->session());
  request.set_grace_ms(absl::ToInt64Milliseconds(grace));
  request.set_asked_by(absl::StrCat("monarchctl (uid ", getuid(), ")"));
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                    gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
  v1::StopSessionResponse response;
  const absl::Status status = CallStatus(
      v1::AdminService::NewStub(OpenChannel(found.daemon->place))->StopSession(&context, request, &response),
      timeout);
  if (!status.ok()) return status;
  return response;
}

}  // namespace monarch::ctl
