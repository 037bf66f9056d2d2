#include "daemon/launcher/launcher_messages.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>

namespace monarch {
namespace {

ProcAddress Proc() { return {HostId::Random(), 7, 2}; }

// Through the wire's encoding, as it will travel.
Value Travelled(const Value& body) {
  const absl::StatusOr<ControlMessage> message = DecodeControl(*EncodeControl({ControlType::kOk, 1, body}));
  REQUIRE(message.ok());
  return message->body;
}

LaunchRequest FullLaunch() {
  LaunchRequest launch;
  launch.proc = Proc();
  launch.argv = {"sh", "-c", "true"};
  launch.env = {"A=b", "LATIN=\xe4\xff"};
  launch.cwd = "/tmp/\xe4";
  launch.umask = 022;
  launch.limits = {{RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY}, {RLIMIT_NOFILE, 10, 20}};
  launch.cpus = {0, 3};
  launch.token = std::string("\0\xff", 2);
  launch.boot = "boot";
  launch.label = "workers[0]";
  launch.output_tag = "t1";
  launch.cgroup_limits = {1 << 20, 30};
  return launch;
}

TEST_CASE("LaunchSurvivesTheRoundTrip") {
  const LaunchRequest launch = FullLaunch();
  const absl::StatusOr<LaunchRequest> back = ParseLaunchRequest(Travelled(ToBody(launch)));
  REQUIRE(back.ok());
  CHECK(back->proc == launch.proc);
  CHECK(back->argv == launch.argv);
  CHECK(back->env == launch.env);
  CHECK(back->cwd == launch.cwd);
  CHECK(back->umask == launch.umask);
  REQUIRE(back->limits.size() == 2);
  CHECK(back->limits[0].soft == RLIM_INFINITY);
  CHECK(back->limits[1].hard == 20);
  CHECK(back->cpus == launch.cpus);
  CHECK(back->token == launch.token);
  CHECK(back->boot == launch.boot);
  CHECK(back->label == launch.label);
  CHECK(back->output_tag == "t1");
  CHECK(back->cgroup_limits.memory_bytes_max == 1 << 20);
  CHECK(back->cgroup_limits.pids_max == 30);
}

TEST_CASE("OtherMessagesSurviveTheRoundTrip") {
  const SessionId session = SessionId::Random();
  LauncherSetup sent;
  sent.session = session;
  sent.client_pid = 5;
  sent.worker_log_bytes_max = 9;
  sent.output_buffer_bytes_max = 10;
  sent.resume_path = "/run/s.sock";
  sent.resume_token = StartToken::Random();
  sent.absence_ms = 600'000;
  const absl::StatusOr<LauncherSetup> setup = ParseLauncherSetup(Travelled(ToBody(sent)));
  REQUIRE(setup.ok());
  CHECK(setup->session == session);
  CHECK(setup->worker_log_bytes_max == 9);
  CHECK(setup->output_buffer_bytes_max == 10);
  CHECK(setup->resume_path == sent.resume_path);
  CHECK(setup->resume_token == sent.resume_token);
  CHECK(setup->absence_ms == sent.absence_ms);
  const absl::StatusOr<LaunchFailure> failure =
      ParseLaunchFailure(Travelled(ToBody(LaunchFailure{Proc(), "exec", 2, "m\xff"})));
  REQUIRE(failure.ok());
  CHECK(failure->error == 2);
  const absl::StatusOr<WorkerDying> dying =
      ParseWorkerDying(Travelled(ToBody(WorkerDying{Proc(), {0, 9, false}})));
  REQUIRE(dying.ok());
  CHECK(dying->cause.signal == 9);
  const absl::StatusOr<WorkerExit> exit = ParseWorkerExit(Travelled(ToBody(
      WorkerExit{Proc(), {0, 6, true}, "x\xff", "#0 f", {MemoryVerdict::Answer::kYes, "counted"}, 77})));
  REQUIRE(exit.ok());
  CHECK(exit->backtrace == "#0 f");
  CHECK(exit->memory_kill.answer == MemoryVerdict::Answer::kYes);
  CHECK(exit->memory_kill.why == "counted");
  CHECK(exit->status == ExitStatus{0, 6, true});
  CHECK(exit->maxrss_kib == 77);
  const absl::StatusOr<WorkerBoot> boot =
      ParseWorkerBoot(Travelled(ToBody(WorkerBoot{session, Proc(), "t", "b"})));
  REQUIRE(boot.ok());
  CHECK(boot->session == session);
  CHECK(boot->boot == "b");
}

TEST_CASE("RefusesAMissingOrMistypedKey") {
  const Value good = ToBody(FullLaunch());
  for (const char* key : {"proc", "argv", "env", "token", "boot"}) {
    INFO(key);
    Value::Map map = *good.map();
    map.erase(key);
    CHECK(absl::IsInvalidArgument(ParseLaunchRequest(map).status()));
    map[key] = 1.5;
    CHECK(absl::IsInvalidArgument(ParseLaunchRequest(map).status()));
  }
  CHECK_FALSE(ParseLauncherSetup(Value()).ok());
  CHECK_FALSE(ParseWorkerExit(Value(Value::Map{})).ok());
}

TEST_CASE("RefusesWhatIsOutOfRange") {
  const auto with = [](const char* key, Value value) {
    Value::Map map = *ToBody(FullLaunch()).map();
    map[key] = std::move(value);
    return ParseLaunchRequest(map).status();
  };
  CHECK(absl::IsInvalidArgument(with("umask", 01000)));
  CHECK(absl::IsInvalidArgument(with("umask", -1)));
  CHECK(absl::IsInvalidArgument(with("output_tag", "a b")));
  CHECK(absl::IsInvalidArgument(with("memory_bytes_max", -1)));
  CHECK(absl::IsInvalidArgument(with("pids_max", "many")));
  CHECK(absl::IsInvalidArgument(with("output_tag", "a\n")));
  CHECK(absl::IsInvalidArgument(with("argv", Value::List{})));
  CHECK(absl::IsInvalidArgument(with("argv", Value::List{"text"})));
  CHECK(absl::IsInvalidArgument(with("cwd", "/text")));
  CHECK(absl::IsInvalidArgument(with("argv", Value::List{Value::Bytes{std::string("a\0b", 3)}})));
  CHECK(absl::IsInvalidArgument(with("cpus", Value::List{-1})));
  CHECK(absl::IsInvalidArgument(with("cpus", Value::List(10'000, Value(1)))));
  CHECK(absl::IsInvalidArgument(with("rlimits", Value::List{Value::List{1, 2}})));
  CHECK(absl::IsInvalidArgument(with("rlimits", Value::List(100, Value::List{1, 2, 3}))));
  CHECK(absl::IsInvalidArgument(with("rlimits", Value::List{Value::List{int64_t{1} << 40, 2, 3}})));
}

TEST_CASE("RefusesASessionOfZero") {
  LauncherSetup setup;
  setup.output_buffer_bytes_max = 10;
  CHECK_FALSE(ParseLauncherSetup(ToBody(setup)).ok());
}

TEST_CASE("RefusesADoorWithoutToken") {
  LauncherSetup setup;
  setup.output_buffer_bytes_max = 10;
  setup.session = SessionId::Random();
  setup.resume_path = "/run/s.sock";
  CHECK_FALSE(ParseLauncherSetup(ToBody(setup)).ok());
}

}  // namespace
}  // namespace monarch
