#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/daemon_context.h"
#include "daemon/host_control.h"
#include "daemon/session_manager.h"

namespace monarch::sim {

// The control plane without gRPC: the requests and answers themselves pass from hand to hand, and between
// daemons their numbers travel in packets, so that they come late, or not at all, as the connection's bytes
// do.
struct SignalRequest {
  std::vector<ProcAddress> procs;
  int signal = 0;
};
struct ShutdownRequest {
  HostId host;
  absl::Duration grace;
  absl::Duration kill_after;
};
struct AttachRequest {
  std::string address;
  absl::Duration timeout;
};
struct ControlRequest {
  StartToken token;
  std::variant<SpawnRequest, StopRequest, SignalRequest, ShutdownRequest, AttachRequest> what;
};
struct ControlAnswer {
  absl::Status status;
  SpawnResult spawn;
  std::vector<FailureEvent> ends;
  AttachedHost host;
};

// What the services do with a request, on the daemon's loop.
void ServeControl(DaemonContext* context, SessionManager* sessions, const ControlRequest& request,
                  absl::AnyInvocable<void(ControlAnswer)> reply);

// A request under way between daemons.
struct ControlCall {
  ControlRequest request;
  ControlAnswer answer;
};
// Those of the whole cluster, by number.
// Threading: confined to the simulation's thread.
class ControlCalls {
 public:
  uint32_t Add(ControlRequest request);
  std::shared_ptr<ControlCall> Find(uint32_t number) const;
  void Remove(uint32_t number) { calls_.erase(number); }
  size_t size() const { return calls_.size(); }

 private:
  std::map<uint32_t, std::shared_ptr<ControlCall>> calls_;
  uint32_t next_ = 1;
};

std::unique_ptr<HostControl> MakeSimHostControl(ControlCalls* calls, EventLoop* loop, ScopedFd socket,
                                                const StartToken& token);

// The connections on which one daemon serves requests of others.
// Threading: confined to the simulation's thread.
class ControlServer : private NativeConnection::Handler {
 public:
  ControlServer(ControlCalls* calls, DaemonContext* context) : calls_(calls), context_(context) {}
  ~ControlServer() override;
  void set_sessions(SessionManager* sessions) { sessions_ = sessions; }
  void Serve(ScopedFd socket);
  size_t connections() const { return connections_.size(); }

 private:
  absl::Status OnPacket(NativeConnection& connection, Packet packet) override;
  void OnClosed(NativeConnection& connection, const absl::Status& why) override;

  ControlCalls* const calls_;
  DaemonContext* const context_;
  SessionManager* sessions_ = nullptr;
  std::map<uint64_t, std::shared_ptr<NativeConnection>> connections_;
  uint64_t next_ = 1;
};

}  // namespace monarch::sim
