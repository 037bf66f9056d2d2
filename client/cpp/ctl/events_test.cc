#include "client/cpp/ctl/events.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "client/cpp/ctl/exit_code.h"
#include "proto/monarch/v1/event.grpc.pb.h"

namespace monarch::ctl {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);  // an answer comes; how long it takes is not the question

v1::WatchResponse Event(uint64_t cursor, int64_t unix_ms) {
  v1::WatchResponse event;
  event.set_cursor(cursor);
  event.set_unix_ms(unix_ms);
  event.set_what("proc_ready");
  return event;
}

// Keeps `kept`; who follows gets `coming`, and the end of the stream.
class FakeEvents : public v1::EventService::Service {
 public:
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    for (const v1::WatchResponse& event : kept) {
      if (event.cursor() > request->after()) writer->Write(event);
    }
    if (request->follow()) {
      followed_after = request->after();
      for (const v1::WatchResponse& event : coming) writer->Write(event);
    }
    return answer;
  }
  std::vector<v1::WatchResponse> kept;
  std::vector<v1::WatchResponse> coming;
  grpc::Status answer;
  std::atomic<uint64_t> followed_after = 0;
};

class FakeDaemon {
 public:
  FakeDaemon() {
    char name[] = "/tmp/ctlXXXXXX";
    place_.directory = mkdtemp(name);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(place_.Socket(), grpc::InsecureServerCredentials());
    builder.RegisterService(&events);
    server_ = builder.BuildAndStart();
  }
  ~FakeDaemon() {
    server_->Shutdown();
    std::filesystem::remove_all(place_.directory);
  }
  const DaemonPlace& place() const { return place_; }
  FakeEvents events;

 private:
  DaemonPlace place_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_CASE("ReadEvents.MergesTheDaemonsByTime") {
  FakeDaemon a;
  FakeDaemon b;
  a.events.kept = {Event(1, 100), Event(2, 300)};
  b.events.kept = {Event(1, 200)};
  const std::vector<DaemonPlace> places = {a.place(), b.place()};
  const KeptEvents kept = ReadEvents(places, kLong);
  REQUIRE(kept.events.size() == 3);
  CHECK(kept.events[0].event.unix_ms() == 100);
  CHECK(kept.events[1].event.unix_ms() == 200);
  CHECK(kept.events[1].place->directory == b.place().directory);
  CHECK(kept.events[2].event.unix_ms() == 300);
  CHECK(ExitCodeFor(kept.answers) == kExitOk);
}

TEST_CASE("ReadEvents.ADeadDaemonIsUnavailableAndTheOthersAreShown") {
  FakeDaemon a;
  a.events.kept = {Event(1, 100)};
  const std::vector<DaemonPlace> places = {{"/tmp/no-such-directory"}, a.place()};
  const KeptEvents kept = ReadEvents(places, kLong);
  CHECK(kept.events.size() == 1);
  REQUIRE(kept.answers.size() == 2);
  CHECK(absl::IsUnavailable(kept.answers[0].answer));
  CHECK(kept.answers[1].answer.ok());
}

TEST_CASE("ReadEvents.ARefusalIsNotSilence") {
  FakeDaemon a;
  a.events.answer = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not yours");
  const std::vector<DaemonPlace> places = {a.place()};
  CHECK(ExitCodeFor(ReadEvents(places, kLong).answers) == kExitRefused);
}

TEST_CASE("FollowEvents.GoesOnBehindWhatIsKnownUntilTheDaemonEnds") {
  FakeDaemon a;
  a.events.kept = {Event(1, 100), Event(2, 300)};
  a.events.coming = {Event(3, 400), Event(4, 500)};
  const std::vector<DaemonPlace> places = {a.place()};
  KeptEvents kept = ReadEvents(places, kLong);
  std::vector<int64_t> seen;
  FollowEvents(&kept, [&](const DaemonEvent& one) { seen.push_back(one.event.unix_ms()); });
  CHECK(seen == std::vector<int64_t>{400, 500});
  CHECK(a.events.followed_after == 2);
  CHECK(ExitCodeFor(kept.answers) == kExitOk);
}

TEST_CASE("FollowEvents.OfNobodyEndsAtOnce") {
  const std::vector<DaemonPlace> places = {{"/tmp/no-such-directory"}};
  KeptEvents kept = ReadEvents(places, kLong);
  FollowEvents(&kept, [](const DaemonEvent&) { FAIL("an event of a daemon that is not there"); });
  CHECK(ExitCodeFor(kept.answers) == kExitSilent);
}

}  // namespace
}  // namespace monarch::ctl
