#include "daemon/launcher/launcher_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/pidfd.h"
#include "daemon/launcher/exec_launcher_host.h"
#include "daemon/launcher/leftovers.h"
#include "message/large_body.h"
#include "message/packet_socket.h"

namespace monarch {
namespace {

constexpr int kWaitMs = 30'000;

bool Ready(int fd, short events, int wait_ms = kWaitMs) {
  pollfd entry{fd, events, 0};
  int count;
  do {
    count = poll(&entry, 1, wait_ms);
  } while (count < 0 && errno == EINTR);
  return count == 1;
}

void MakePipe(ScopedFd* read_end, ScopedFd* write_end) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  read_end->reset(ends[0]);
  write_end->reset(ends[1]);
}

}  // namespace

std::string Runfile(const std::string& name) {
  return std::filesystem::current_path().string() + "/daemon/launcher/" + name;
}

ProcessWatch::ProcessWatch(pid_t pid) : pidfd_(OpenPidfd(pid).value_or(ScopedFd())) {
  REQUIRE(pidfd_.valid());
}

bool ProcessWatch::Ended() { return Ready(pidfd_.get(), POLLIN); }

bool ProcessWatch::Runs() { return !Ready(pidfd_.get(), POLLIN, 0); }

LauncherFixture::LauncherFixture(LauncherFixtureOptions options) {
  char name[] = "/tmp/monarch_launcher_XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  dir_ = name;
  MakeClient();
  ScopedFd out;
  ScopedFd err;
  MakePipe(&out_reader_, &out);
  MakePipe(&err_reader_, &err);
  ExecLauncherHost host(Runfile("monarch-launcher"), STDERR_FILENO);
  absl::StatusOr<StartedLauncher> started = host.Start(session_, geteuid());
  REQUIRE(started.ok());
  launcher_ = *std::move(started);
  LauncherSetup setup;
  setup.session = session_;
  setup.client_pid = client_;
  if (options.log_bytes_max != 0) setup.log_path = log_path();
  setup.worker_log_bytes_max = options.log_bytes_max;
  setup.output_buffer_bytes_max = 4 << 20;
  setup.use_cgroup = options.use_cgroup;
  Send(ControlType::kSetup, 1, ToBody(setup), {client_pidfd_.get(), out.get(), err.get()});
  CHECK(Next(ControlType::kOk).request == 1);
}

LauncherFixture::~LauncherFixture() {
  if (!launcher_reaped_) {
    CloseDaemonSocket();
    WaitLauncher();
  }
  KillClient();
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
  // Only a launcher that was killed leaves one.
  SessionCgroup::Find(session_).Remove();
}

void LauncherFixture::MakeClient() {
  client_ = fork();
  REQUIRE(client_ >= 0);
  if (client_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  client_pidfd_ = OpenPidfd(client_).value_or(ScopedFd());
  REQUIRE(client_pidfd_.valid());
}

void LauncherFixture::KillClient() {
  if (client_ < 0) return;
  kill(client_, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(client_), &info, WEXITED);
  client_ = -1;
}

LaunchRequest LauncherFixture::Request(std::vector<std::string> argv) {
  LaunchRequest request;
  request.proc = {host_, next_proc_++, 1};
  request.argv = std::move(argv);
  request.env = {"PATH=/usr/bin:/bin", "COLOUR=green"};
  request.token = "secret";
  request.boot = "luggage";
  request.label = "workers[0]";
  return request;
}

LaunchRequest LauncherFixture::Helper(const std::string& what) {
  return Request({Runfile("test_worker"), what});
}

void LauncherFixture::Send(ControlType type, uint32_t request, Value body, std::vector<int> fds) {
  const absl::StatusOr<bool> sent =
      launcher_.socket.TrySend(*EncodeControl({type, request, std::move(body)}), fds);
  REQUIRE(sent.ok());
  REQUIRE(*sent);
}

PacketSocket LauncherFixture::Launch(const LaunchRequest& request) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  REQUIRE(pair.ok());
  ControlMessage message{ControlType::kLaunch, 0, ToBody(request)};
  const absl::StatusOr<ScopedFd> large = MoveLargeBodyOut(&message);
  REQUIRE(large.ok());
  std::vector<int> fds = {pair->second.fd()};
  if (large->valid()) fds.push_back(large->get());
  Send(ControlType::kLaunch, 0, std::move(message.body), fds);
  return std::move(pair->first);
}

pid_t LauncherFixture::LaunchOk(const LaunchRequest& request) {
  Launch(request);
  return static_cast<pid_t>(Next(ControlType::kLaunched).body["pid"].AsInt().value());
}

ControlMessage LauncherFixture::Next() {
  REQUIRE(Ready(launcher_.socket.fd(), POLLIN));
  Packet packet;
  const absl::StatusOr<bool> received = launcher_.socket.TryReceive(&packet);
  INFO(received.status());
  REQUIRE(received.ok());
  REQUIRE(*received);
  absl::StatusOr<ControlMessage> message = DecodeControl(packet.bytes);
  REQUIRE(message.ok());
  return *std::move(message);
}

ControlMessage LauncherFixture::Next(ControlType wanted) {
  ControlMessage message = Next();
  INFO(message.body.ToString());
  REQUIRE(static_cast<int>(message.type) == static_cast<int>(wanted));
  return message;
}

ControlMessage LauncherFixture::Await(ControlType wanted) {
  for (;;) {
    ControlMessage message = Next();
    if (message.type == wanted) return message;
  }
}

WorkerExit LauncherFixture::AwaitExit() {
  absl::StatusOr<WorkerExit> exit = ParseWorkerExit(Await(ControlType::kExited).body);
  REQUIRE(exit.ok());
  return *std::move(exit);
}

std::string LauncherFixture::ReadUntil(int fd, std::string* text, const std::string& wanted) {
  char buffer[64 * 1024];
  while (text->find(wanted) == std::string::npos) {
    REQUIRE(Ready(fd, POLLIN));
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    INFO("read so far: " << *text);
    REQUIRE(got > 0);
    text->append(buffer, static_cast<size_t>(got));
  }
  return std::exchange(*text, {});
}

bool LauncherFixture::OutEnds() {
  char buffer[64 * 1024];
  while (Ready(out_reader_.get(), POLLIN)) {
    if (read(out_reader_.get(), buffer, sizeof(buffer)) == 0) return true;
  }
  return false;
}

void LauncherFixture::SignalLauncher(int signal) { REQUIRE(kill(launcher_.pid, signal) == 0); }

ExitStatus LauncherFixture::WaitLauncher() {
  REQUIRE(Ready(launcher_.pidfd.get(), POLLIN));
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(launcher_.pid), &info, WEXITED) == 0);
  launcher_reaped_ = true;
  return ExitStatus::FromSiginfo(info.si_code, info.si_status);
}

}  // namespace monarch
