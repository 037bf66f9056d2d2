// The event service of the real daemon.
#include <grpcpp/create_channel.h>
#include <signal.h>

#include <catch2/catch.hpp>

#include "absl/time/time.h"
#include "base/clock.h"
#include "daemon/daemon_harness.h"

namespace monarch {
namespace {

TEST_CASE("EventsCanBeWatched") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  v1::SpawnProcsResponse procs;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(WallTime() + absl::Seconds(20)));
  v1::WatchRequest request;
  request.set_follow(true);
  const auto reader = v1::EventService::NewStub(harness.Control())->Watch(&context, request);
  REQUIRE(harness.Spawn(harness.SpawnOf("1", {"ready"}), &procs).ok());
  kill(static_cast<pid_t>(procs.procs(0).pid()), SIGKILL);
  std::vector<std::string> seen;
  v1::WatchResponse event;
  while (seen.size() < 3 && reader->Read(&event)) seen.push_back(event.what());
  CHECK(seen == std::vector<std::string>{"session_started", "proc_ready", "proc_ended"});
  CHECK(event.failure().kind() == v1::FAILURE_KIND_SIGNALLED);
  context.TryCancel();
}

TEST_CASE("WhoFollowsTheEventsDoesNotHoldUpTheEnd") {
  DaemonHarness harness;
  REQUIRE(harness.Hello());
  grpc::ClientContext context;
  v1::WatchRequest request;
  request.set_follow(true);
  const auto reader = v1::EventService::NewStub(harness.Control())->Watch(&context, request);
  v1::WatchResponse event;
  REQUIRE(reader->Read(&event));
  harness.daemon->Signal(SIGTERM);
  while (reader->Read(&event)) {
  }
  // Whether its last answer is still out in time is not promised.
  reader->Finish();
  CHECK(harness.daemon->WaitGone());
}

}  // namespace
}  // namespace monarch
