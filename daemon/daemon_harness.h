#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/failure_event.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"
#include "message/doorbell.h"
#include "message/packet_socket.h"
#include "proto/monarch/v1/admin.grpc.pb.h"
#include "proto/monarch/v1/event.grpc.pb.h"
#include "proto/monarch/v1/host.grpc.pb.h"
#include "proto/monarch/v1/process.grpc.pb.h"

namespace monarch {

// A started program, killed and reaped at the latest when this is destroyed.
// Threading: confined to the test.
class TestProcess {
 public:
  // The fds become 3, 4, … in it.
  TestProcess(const std::vector<std::string>& argv, const std::vector<int>& fds);
  ~TestProcess();
  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Whether it ended within the test's patience.
  bool WaitGone();

 private:
  pid_t pid_ = -1;
  ScopedFd pidfd_;
};

// A private monarchd, a client process of its own, and the client's side of both protocols, spoken by the
// test. Threading: confined to the test.
class DaemonHarness {
 public:
  explicit DaemonHarness(const std::vector<std::string>& flags = {});

  // Hello and welcome. False: refused (then `refusal` is set).
  bool Hello(int64_t protocol = 1);
  std::string refusal;
  ProcAddress self;
  SessionId session;
  StartToken control_token;
  std::string run_dir;

  void Send(ControlType type, uint32_t request, Value::Map body, const std::vector<int>& fds = {});
  // The next control message for which `wanted` holds; others are dropped. Unspecified type: none came in
  // time.
  ControlMessage Await(const std::function<bool(const ControlMessage&)>& wanted,
                       std::vector<ScopedFd>* fds = nullptr);
  ControlMessage AwaitAnswer(uint32_t request) {
    return Await([request](const ControlMessage& m) { return m.request == request; });
  }
  // The next frame's packet; empty: none came.
  std::string AwaitFrame();
  // A connection to the control plane in the name of this session.
  std::shared_ptr<grpc::Channel> Control();

  // Workers that do `what`, one entry for each rank.
  v1::SpawnProcsRequest SpawnOf(const std::string& id, const std::vector<std::string>& what);
  grpc::Status Spawn(const v1::SpawnProcsRequest& request, v1::SpawnProcsResponse* response);
  grpc::Status Stop(const v1::SpawnProcsResponse& procs, uint32_t grace_ms, v1::StopProcsResponse* response);
  v1::GetTreeResponse Tree();
  v1::GetStatusResponse Status();
  Doorbell& doorbell() { return *doorbell_; }

  std::unique_ptr<TestProcess> client;
  std::unique_ptr<TestProcess> daemon;
  PacketSocket socket;

 private:
  std::unique_ptr<Doorbell> doorbell_;
  ScopedFd segment_;
  std::shared_ptr<grpc::Channel> control_;
};

// Whether the process ends (or ended) within the test's patience.
bool WaitProcessGone(pid_t pid);
bool ProcessExists(pid_t pid);
// /proc's line about it, for messages.
std::string DescribeProcess(pid_t pid);

}  // namespace monarch
