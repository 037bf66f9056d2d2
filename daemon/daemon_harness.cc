#include "daemon/daemon_harness.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/version.h"
#include "message/memfd.h"
#include "proto/control_token.h"
#include "proto/id_conversion.h"

namespace monarch {
namespace {

// Bounds every wait; far above what anything here takes on a busy machine.
constexpr int kPatienceMs = 20000;

std::string Beside(const char* name) { return std::string("daemon/") + name; }

bool WaitPidfd(int pidfd) {
  pollfd entry = {pidfd, POLLIN, 0};
  return poll(&entry, 1, kPatienceMs) == 1;
}

}  // namespace

TestProcess::TestProcess(const std::vector<std::string>& argv, const std::vector<int>& fds) {
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  pid_ = fork();
  MONARCH_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    // Out of the way first: a target number may be another source.
    int next = 100;
    for (const int fd : fds) dup2(fd, next++);
    for (size_t i = 0; i < fds.size(); ++i) dup2(100 + static_cast<int>(i), 3 + static_cast<int>(i));
    syscall(SYS_close_range, 3 + fds.size(), ~0u, 0);
    execv(args[0], args.data());
    _exit(127);
  }
  pidfd_ = ScopedFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  MONARCH_CHECK(pidfd_.valid());
}

TestProcess::~TestProcess() {
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TestProcess::Signal(int signal) { syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0); }

bool TestProcess::WaitGone() { return WaitPidfd(pidfd_.get()); }

bool WaitProcessGone(pid_t pid) {
  const ScopedFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  return !pidfd.valid() || WaitPidfd(pidfd.get());
}

bool ProcessExists(pid_t pid) { return pid > 0 && kill(pid, 0) == 0; }

std::string DescribeProcess(pid_t pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  return line;
}

DaemonHarness::DaemonHarness(const std::vector<std::string>& flags) {
  auto line = PacketSocket::Pair();
  MONARCH_CHECK(line.ok());
  client = std::make_unique<TestProcess>(std::vector<std::string>{Beside("fake_worker"), "--client"},
                                         std::vector<int>{line->second.fd()});
  MONARCH_CHECK(WaitReadable(line->first.fd(), kPatienceMs).ok());
  Packet packet;
  MONARCH_CHECK(*line->first.TryReceive(&packet) && packet.fds.size() == 2);
  std::vector<std::string> argv = {
      Beside("monarchd"), "--private", "--client-fd", "3", "--launcher", Beside("launcher/monarch-launcher"),
      "--log-level",      "debug"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  daemon = std::make_unique<TestProcess>(argv, std::vector<int>{packet.fds[0].get()});
  socket = PacketSocket(std::move(packet.fds[1]));
  // The client process waits on this line; it must not see its end before it is killed.
  line->first.ReleaseFd().release();
}

bool DaemonHarness::Hello(int64_t protocol) {
  doorbell_ = std::make_unique<Doorbell>(*Doorbell::Create());
  segment_ = *CreateSealedMemfd("client-segment", 1 << 20);
  Send(ControlType::kHello, 1,
       {{"protocol", Value(protocol)},
        {"version", Value(kVersion)},
        {"role", Value("client")},
        {"pid", Value(int64_t{client->pid()})},
        {"name", Value("daemon_test")}},
       {doorbell_->memfd(), doorbell_->bell(), segment_.get(), 1, 2});
  const ControlMessage answer = AwaitAnswer(1);
  if (answer.type != ControlType::kWelcome) {
    refusal = answer.body["message"].AsString().value_or("no answer");
    return false;
  }
  self = *ProcAddressFromValue(answer.body["self"]);
  session = SessionId(*Id128FromValue(answer.body["session"]));
  control_token = StartToken(*Id128FromValue(answer.body["control_token"]));
  run_dir = *answer.body["run_dir"].AsString();
  return true;
}

void DaemonHarness::Send(ControlType type, uint32_t request, Value::Map body, const std::vector<int>& fds) {
  const auto sent =
      socket.TrySend(*EncodeControl(ControlMessage{type, request, Value(std::move(body))}), fds);
  MONARCH_CHECK(sent.ok() && *sent);
}

ControlMessage DaemonHarness::Await(const std::function<bool(const ControlMessage&)>& wanted,
                                    std::vector<ScopedFd>* fds) {
  for (;;) {
    Packet packet;
    const auto got = socket.TryReceive(&packet);
    if (!got.ok()) return {};
    if (!*got) {
      if (!WaitReadable(socket.fd(), kPatienceMs).ok()) return {};
      continue;
    }
    const auto message = DecodeControl(packet.bytes);
    if (!message.ok() || !wanted(*message)) continue;
    if (fds != nullptr) *fds = std::move(packet.fds);
    return *message;
  }
}

std::string DaemonHarness::AwaitFrame() {
  for (;;) {
    Packet packet;
    const auto got = socket.TryReceive(&packet);
    if (!got.ok()) return "";
    if (*got && IsFramePacket(packet.bytes)) return packet.bytes;
    if (!*got && !WaitReadable(socket.fd(), kPatienceMs).ok()) return "";
  }
}

std::shared_ptr<grpc::Channel> DaemonHarness::Control() {
  if (control_) return control_;
  int fds[2];
  MONARCH_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  Send(ControlType::kOpenControl, 77, {}, {fds[0]});
  close(fds[0]);
  MONARCH_CHECK(AwaitAnswer(77).type == ControlType::kOk);
  control_ = grpc::CreateInsecureChannelFromFd("monarchd", fds[1]);
  return control_;
}

v1::SpawnProcsRequest DaemonHarness::SpawnOf(const std::string& id, const std::vector<std::string>& what) {
  v1::SpawnProcsRequest request;
  request.set_request_id(id);
  request.set_mesh("m" + id);
  request.add_labels("gpus");
  request.add_sizes(what.size());
  char cwd[4096];
  MONARCH_CHECK(getcwd(cwd, sizeof(cwd)) != nullptr);
  for (const std::string& boot : what) {
    v1::ProcessSpec* spec = request.add_rank_specs();
    spec->add_argv(std::string(cwd) + "/" + Beside("fake_worker"));
    spec->add_env("PATH=/usr/bin:/bin");
    spec->set_cwd("/");
    spec->set_umask(022);
    spec->set_boot(boot);
  }
  *request.mutable_owner() = ToProto(ActorAddress{self, kRootActor});
  return request;
}

grpc::Status DaemonHarness::Spawn(const v1::SpawnProcsRequest& request, v1::SpawnProcsResponse* response) {
  grpc::ClientContext context;
  AddControlToken(control_token, &context);
  context.set_deadline(absl::ToChronoTime(WallTime() + absl::Milliseconds(kPatienceMs)));
  return v1::ProcessService::NewStub(Control())->SpawnProcs(&context, request, response);
}

grpc::Status DaemonHarness::Stop(const v1::SpawnProcsResponse& procs, uint32_t grace_ms,
                                 v1::StopProcsResponse* response) {
  v1::StopProcsRequest request;
  request.set_request_id("stop");
  request.set_grace_ms(grace_ms);
  request.set_kill_after_ms(grace_ms);
  request.set_reason("the test is done with it");
  for (const v1::ProcInfo& proc : procs.procs()) *request.add_procs() = proc.address();
  grpc::ClientContext context;
  AddControlToken(control_token, &context);
  context.set_deadline(absl::ToChronoTime(WallTime() + absl::Milliseconds(kPatienceMs)));
  return v1::ProcessService::NewStub(Control())->StopProcs(&context, request, response);
}

v1::GetStatusResponse DaemonHarness::Status() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(WallTime() + absl::Milliseconds(kPatienceMs)));
  v1::GetStatusResponse response;
  MONARCH_CHECK(v1::AdminService::NewStub(Control())->GetStatus(&context, {}, &response).ok());
  return response;
}

v1::GetTreeResponse DaemonHarness::Tree() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(WallTime() + absl::Milliseconds(kPatienceMs)));
  v1::GetTreeResponse response;
  MONARCH_CHECK(v1::AdminService::NewStub(Control())->GetTree(&context, {}, &response).ok());
  return response;
}

}  // namespace monarch
