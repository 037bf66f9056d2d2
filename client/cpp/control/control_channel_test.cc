// The channel against a server of gRPC's that records what it is asked and answers what it is told to.
#include "client/cpp/control/control_channel.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <utility>

#include "base/mutex.h"
#include "proto/control_token.h"
#include "proto/failure_event_conversion.h"
#include "proto/id_conversion.h"
#include "proto/monarch/v1/process.grpc.pb.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

const HostId kHost({1, 2});
const ProcAddress kProc{kHost, 7, 1};

// Threading: thread-safe (mu_); handlers run on gRPC's threads.
class FakeService final : public v1::ProcessService::Service {
 public:
  grpc::Status SpawnProcs(grpc::ServerContext* context, const v1::SpawnProcsRequest* request,
                          v1::SpawnProcsResponse* response) override {
    return Answer(context, request, &spawned_, response);
  }
  grpc::Status StopProcs(grpc::ServerContext* context, const v1::StopProcsRequest* request,
                         v1::StopProcsResponse* response) override {
    return Answer(context, request, &stopped_, response);
  }
  grpc::Status SignalProcs(grpc::ServerContext* context, const v1::SignalProcsRequest* request,
                           v1::SignalProcsResponse* response) override {
    return Answer(context, request, &signalled_, response);
  }
  grpc::Status ListProcs(grpc::ServerContext* context, const v1::ListProcsRequest* request,
                         v1::ListProcsResponse* response) override {
    return Answer(context, request, &listed_, response);
  }
  grpc::Status AttachHost(grpc::ServerContext* context, const v1::AttachHostRequest* request,
                          v1::AttachHostResponse* response) override {
    return Answer(context, request, &attached_, response);
  }
  grpc::Status ShutdownHost(grpc::ServerContext* context, const v1::ShutdownHostRequest* request,
                            v1::ShutdownHostResponse* response) override {
    return Answer(context, request, &shut_down_, response);
  }

  template <typename Request, typename Response>
  struct Exchange {
    Request request;
    Response response;
  };
  // What is answered, and the last that was asked: for the test, while no request is under way.
  Exchange<v1::SpawnProcsRequest, v1::SpawnProcsResponse> spawned_;
  Exchange<v1::StopProcsRequest, v1::StopProcsResponse> stopped_;
  Exchange<v1::SignalProcsRequest, v1::SignalProcsResponse> signalled_;
  Exchange<v1::ListProcsRequest, v1::ListProcsResponse> listed_;
  Exchange<v1::AttachHostRequest, v1::AttachHostResponse> attached_;
  Exchange<v1::ShutdownHostRequest, v1::ShutdownHostResponse> shut_down_;
  absl::Status status_;
  int requests_ = 0;
  std::string token_;

 private:
  template <typename Request, typename Response>
  grpc::Status Answer(grpc::ServerContext* context, const Request* request,
                      Exchange<Request, Response>* exchange, Response* response) {
    MutexLock lock(mu_);
    ++requests_;
    const auto token = context->client_metadata().find(kControlTokenKey);
    token_ = token == context->client_metadata().end()
                 ? ""
                 : std::string(token->second.data(), token->second.size());
    exchange->request = *request;
    *response = exchange->response;
    return ToGrpcStatus(status_);
  }

  Mutex mu_;
};

// A server without ports, and a channel to it. Threading: confined to its test.
struct Rig {
  Rig() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    channel = MakeControlChannel([this] { return Open(); }, token);
  }
  ~Rig() {
    channel.reset();
    server->Shutdown();
  }

  absl::StatusOr<ScopedFd> Open() {
    ++opened;
    if (opened <= refused) return absl::ResourceExhaustedError("no more sockets");
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    ScopedFd theirs(fds[1]);
    if (opened > broken) grpc::AddInsecureChannelFromFd(server.get(), theirs.release());
    return ScopedFd(fds[0]);
  }

  const StartToken token = StartToken::Random();
  FakeService service;
  std::unique_ptr<grpc::Server> server;
  int opened = 0;
  int refused = 0;  // so many attempts to open a connection fail
  int broken = 0;   // so many connections have nobody at their other end
  std::unique_ptr<ControlChannel> channel;
};

SpawnRequest Request() {
  SpawnRequest request;
  request.mesh = "mesh";
  request.shape = *Shape::Create({"gpus"}, *NDSlice::RowMajor({2}));
  ProcessSpec spec;
  spec.argv = {"/bin/worker", "-v"};
  spec.env = {"A=b"};
  spec.cwd = "/tmp";
  spec.umask = 027;
  spec.limits = {{7, 10, 20}};
  spec.cpus = {0, 3};
  spec.boot = std::string("\xff\0", 2);
  spec.inherit_env = true;
  spec.output_tag = "tag";
  spec.memory_bytes_max = 1 << 20;
  spec.pids_max = 30;
  request.specs = {spec};
  request.hosts = {kHost, kHost};
  request.owner = {kProc, 5};
  request.phase_timeout = absl::Milliseconds(1500);
  return request;
}

v1::ProcInfo InfoOf(uint64_t proc, uint32_t rank) {
  v1::ProcInfo info;
  *info.mutable_address() = ToProto(ProcAddress{kHost, proc, 1});
  info.set_rank(rank);
  info.set_pid(static_cast<int64_t>(proc) * 100);
  info.set_mesh("mesh");
  info.set_phase("ready");
  info.set_rank_label("{'gpus': 0/2}");
  return info;
}

}  // namespace

TEST_CASE("ASpawnIsAskedForAsItWasDescribed") {
  Rig rig;
  *rig.service.spawned_.response.add_procs() = InfoOf(8, 0);
  *rig.service.spawned_.response.add_procs() = InfoOf(9, 1);
  const auto procs = rig.channel->SpawnProcs(Request());
  REQUIRE(procs.ok());
  REQUIRE(procs->size() == 2);
  CHECK((*procs)[0].address == ProcAddress{kHost, 8, 1});
  CHECK((*procs)[1].pid == 900);
  CHECK(rig.service.token_ == rig.token.ToHex());

  const v1::SpawnProcsRequest& asked = rig.service.spawned_.request;
  CHECK(asked.request_id().size() == 32);
  CHECK(asked.mesh() == "mesh");
  CHECK(asked.labels(0) == "gpus");
  CHECK(asked.sizes(0) == 2);
  CHECK(asked.hosts_size() == 2);
  CHECK(asked.hosts(1) == ToProtoBytes(kHost));
  CHECK(*FromProto(asked.owner()) == ActorAddress{kProc, 5});
  CHECK(asked.phase_timeout_ms() == 1500);
  CHECK(asked.rank_specs_size() == 0);
  const v1::ProcessSpec& spec = asked.spec();
  CHECK(spec.argv_size() == 2);
  CHECK(spec.argv(1) == "-v");
  CHECK(spec.env(0) == "A=b");
  CHECK(spec.cwd() == "/tmp");
  CHECK(spec.umask() == 027);
  CHECK(spec.limits(0).resource() == 7);
  CHECK(spec.limits(0).soft() == 10);
  CHECK(spec.limits(0).hard() == 20);
  CHECK(spec.cpus_size() == 2);
  CHECK(spec.cpus(1) == 3);
  CHECK(spec.boot() == std::string("\xff\0", 2));
  CHECK(spec.inherit_env());
  CHECK(spec.output_tag() == "tag");
  CHECK(spec.memory_bytes_max() == 1 << 20);
  CHECK(spec.pids_max() == 30);
}

TEST_CASE("ASpawnTakesOneSpecificationOrOneForEachRank") {
  Rig rig;
  *rig.service.spawned_.response.add_procs() = InfoOf(8, 0);
  *rig.service.spawned_.response.add_procs() = InfoOf(9, 1);
  SpawnRequest request = Request();
  request.specs.push_back(request.specs.front());
  request.specs.back().cwd = "/";
  REQUIRE(rig.channel->SpawnProcs(request).ok());
  CHECK_FALSE(rig.service.spawned_.request.has_spec());
  REQUIRE(rig.service.spawned_.request.rank_specs_size() == 2);
  CHECK(rig.service.spawned_.request.rank_specs(1).cwd() == "/");
  for (const size_t specs : {0, 3}) {
    request.specs.resize(specs);
    CHECK(absl::IsInvalidArgument(rig.channel->SpawnProcs(request).status()));
  }
  CHECK(rig.service.requests_ == 1);
}

TEST_CASE("AnAnswerToASpawnThatNamesTooFewIsAnError") {
  Rig rig;
  *rig.service.spawned_.response.add_procs() = InfoOf(8, 0);
  CHECK(rig.channel->SpawnProcs(Request()).status().code() == absl::StatusCode::kInternal);
  *rig.service.spawned_.response.add_procs() = InfoOf(9, 1);
  rig.service.spawned_.response.mutable_procs(1)->mutable_address()->set_host("short");
  CHECK(absl::IsInvalidArgument(rig.channel->SpawnProcs(Request()).status()));
}

TEST_CASE("ABrokenConnectionIsReplacedAndTheRequestKeepsItsId") {
  Rig rig;
  SECTION("from the beginning") {
    rig.broken = 1;
    CHECK(rig.channel->SignalProcs({kProc}, 9).ok());
    CHECK(rig.opened == 2);
    CHECK(rig.service.requests_ == 1);
  }
  SECTION("after the request was carried out, whenever it is made") {
    // Unavailable without a detail is what a connection that breaks before the answer looks like.
    rig.service.status_ = absl::UnavailableError("connection reset");
    CHECK(absl::IsUnavailable(rig.channel->SignalProcs({kProc}, 9)));
    CHECK(rig.opened == 8);
    CHECK(rig.service.requests_ == 8);
  }
  CHECK(rig.service.signalled_.request.signal() == 9);
  CHECK(*FromProto(rig.service.signalled_.request.procs(0)) == kProc);
  CHECK(rig.service.signalled_.request.request_id().size() == 32);
}

TEST_CASE("ARefusalOfTheDaemonIsNotAskedForAgain") {
  Rig rig;
  v1::ErrorDetail detail;
  detail.set_limit("procs_per_host_max");
  FailureEvent event;
  event.kind = FailureKind::kExited;
  event.code = 3;
  *detail.add_failures() = ToProto(event);
  // One that does not parse is left out.
  detail.add_failures()->set_kind(static_cast<v1::FailureKind>(99));
  rig.service.status_ = absl::UnavailableError("a rank ended");
  SetErrorDetail(detail, &rig.service.status_);
  const absl::Status status = rig.channel->SpawnProcs(Request()).status();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "a rank ended");
  CHECK(rig.service.requests_ == 1);
  const ControlFailure failure = ControlFailureOf(status);
  CHECK(failure.limit == "procs_per_host_max");
  REQUIRE(failure.failures.size() == 1);
  CHECK(failure.failures[0].code == 3);
  const ControlFailure none = ControlFailureOf(absl::InternalError("x"));
  CHECK(none.limit.empty());
  CHECK(none.failures.empty());
}

TEST_CASE("WithoutASocketTheRequestFailsAndTheNextOneTriesAgain") {
  Rig rig;
  rig.refused = 1;
  const absl::Status status = rig.channel->SignalProcs({kProc}, 9);
  CHECK(absl::IsResourceExhausted(status));
  CHECK(status.message() == "no more sockets");
  CHECK(rig.channel->SignalProcs({kProc}, 9).ok());
  CHECK(rig.opened == 2);
}

TEST_CASE("RequestsShareAConnectionUntilItIsClosed") {
  Rig rig;
  CHECK(rig.channel->SignalProcs({kProc}, 9).ok());
  CHECK(rig.channel->SignalProcs({kProc}, 9).ok());
  CHECK(rig.opened == 1);
  rig.channel->Close();
  CHECK(rig.channel->SignalProcs({kProc}, 9).ok());
  CHECK(rig.opened == 2);
}

TEST_CASE("AStopSaysHowEachEnded") {
  Rig rig;
  for (const int code : {0, 1}) {
    FailureEvent end;
    end.kind = code == 0 ? FailureKind::kStopped : FailureKind::kExited;
    end.code = code;
    *rig.service.stopped_.response.add_ends() = ToProto(end);
  }
  const auto ends =
      rig.channel->StopProcs({kProc, kProc}, absl::Milliseconds(20), absl::Milliseconds(30), "why");
  REQUIRE(ends.ok());
  REQUIRE(ends->size() == 2);
  CHECK((*ends)[0].kind == FailureKind::kStopped);
  CHECK((*ends)[1].code == 1);
  CHECK(rig.service.stopped_.request.procs_size() == 2);
  CHECK(rig.service.stopped_.request.grace_ms() == 20);
  CHECK(rig.service.stopped_.request.kill_after_ms() == 30);
  CHECK(rig.service.stopped_.request.reason() == "why");
  rig.service.stopped_.response.mutable_ends(0)->set_kind(static_cast<v1::FailureKind>(99));
  CHECK(absl::IsInvalidArgument(rig.channel->StopProcs({kProc}, {}, {}, "").status()));
}

TEST_CASE("AListingTellsOfEachProcess") {
  Rig rig;
  *rig.service.listed_.response.add_procs() = InfoOf(8, 1);
  const auto procs = rig.channel->ListProcs();
  REQUIRE(procs.ok());
  REQUIRE(procs->size() == 1);
  const ProcStatus& proc = procs->front();
  CHECK(proc.address == ProcAddress{kHost, 8, 1});
  CHECK(proc.rank == 1);
  CHECK(proc.pid == 800);
  CHECK(proc.mesh == "mesh");
  CHECK(proc.phase == "ready");
  CHECK(proc.rank_label == "{'gpus': 0/2}");
}

TEST_CASE("ActivitiesAreThoseOfTheActorsAtWork") {
  Rig rig;
  v1::ActorActivity* one = rig.service.listed_.response.add_activities();
  *one->mutable_actor() = ToProto(ActorAddress{kProc, 3});
  one->set_pid(800);
  one->set_method("train");
  one->set_age_ms(1500);
  one->set_state("waiting");
  one->set_wait_channel("futex_wait");
  const auto activities = rig.channel->ListActivities();
  REQUIRE(activities.ok());
  REQUIRE(activities->size() == 1);
  CHECK(rig.service.listed_.request.with_activities());
  CHECK(activities->front().actor == ActorAddress{kProc, 3});
  CHECK(activities->front().pid == 800);
  CHECK(activities->front().method == "train");
  CHECK(activities->front().age == absl::Milliseconds(1500));
  CHECK(activities->front().state == "waiting");
  CHECK(activities->front().wait_channel == "futex_wait");
}

TEST_CASE("HostsAreAttachedAndShutDown") {
  Rig rig;
  rig.service.attached_.response.set_host(ToProtoBytes(kHost));
  rig.service.attached_.response.set_host_name("there");
  rig.service.attached_.response.set_address("tcp://localhost:1");
  const auto host = rig.channel->AttachHost("tcp://localhost:1", absl::Milliseconds(250));
  REQUIRE(host.ok());
  CHECK(host->host == kHost);
  CHECK(host->name == "there");
  CHECK(host->address == "tcp://localhost:1");
  CHECK(rig.service.attached_.request.address() == "tcp://localhost:1");
  CHECK(rig.service.attached_.request.timeout_ms() == 250);
  rig.service.attached_.response.set_host("short");
  CHECK(absl::IsInvalidArgument(rig.channel->AttachHost("x", absl::Seconds(1)).status()));

  CHECK(rig.channel->ShutdownHost(kHost, absl::Milliseconds(20), absl::Milliseconds(30)).ok());
  CHECK(rig.service.shut_down_.request.host() == ToProtoBytes(kHost));
  CHECK(rig.service.shut_down_.request.grace_ms() == 20);
  CHECK(rig.service.shut_down_.request.kill_after_ms() == 30);
}

}  // namespace monarch
