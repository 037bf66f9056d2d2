#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/failure_event.h"
#include "base/ids.h"
#include "base/scoped_fd.h"
#include "message/control_message.h"
#include "message/packet_socket.h"
#include "tests/sim/ledger.h"
#include "tests/sim/world.h"

namespace monarch::sim {

// A process of a simulated host, but its daemon. Stays as an object when it is dead, until the run's end.
// Threading: confined to the simulation's thread.
class Process {
 public:
  // `mark`: of its session, as in its environment; empty: none.
  Process(World* world, int host, std::string mark);
  virtual ~Process() = default;

  pid_t pid() const { return pid_; }
  int host() const { return host_; }
  const std::string& mark() const { return mark_; }
  bool alive() const { return alive_; }
  // As the kernel has it: fds close, the pidfd becomes readable, the parent is told. Nothing if it is dead.
  void Die(int code, int signal);
  ScopedFd Pidfd() const { return *pidfd_.Dup(); }
  std::function<void(int code, int signal)> on_death;

 protected:
  virtual void OnDeath() {}
  World& world() { return *world_; }
  // Runs if it is alive then.
  void After(absl::Duration delay, EventLoop::Task task);

 private:
  World* const world_;
  const int host_;
  const std::string mark_;
  const pid_t pid_;
  const ScopedFd pidfd_;
  bool alive_ = true;
};

// A packet socket of a simulated process: what comes is handled in order, each a while after it came.
// Threading: confined to the simulation's thread.
class Mailbox {
 public:
  // Null: the other end is closed.
  using Handler = std::function<void(Packet* packet)>;
  Mailbox(World* world, PacketSocket socket, Handler handler);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Send(ControlType type, uint32_t request, Value::Map body, const std::vector<int>& fds = {});
  void SendBytes(const std::string& bytes, const std::vector<int>& fds = {});
  // How long a packet waits to be handled, at most.
  absl::Duration slowness = absl::Milliseconds(1);

 private:
  void OnReadable();
  void HandleNext();

  World* const world_;
  PacketSocket socket_;
  const Handler handler_;
  const std::shared_ptr<bool> alive_;
  std::deque<std::optional<Packet>> waiting_;
  absl::Duration busy_until_;
  bool ended_ = false;
};

// How a worker behaves.
struct WorkerPlan {
  enum class Fate { kGood, kNotLaunched, kDiesUnconnected, kDiesConnected, kSilent, kMute };
  Fate fate = Fate::kGood;
  bool exits_with_zero = false;  // where it dies by itself
  bool ignores_stop = false;
  bool ignores_term = false;
  bool leaves_child = false;  // in a session of its own
  absl::Duration until_hello;
  absl::Duration until_ready;
  absl::Duration until_stopped;
};

// A client or a worker: speaks to its daemon, and knows what it was told of others.
// Threading: confined to the simulation's thread.
class Member final : public Process {
 public:
  struct Notice {
    int dead = 0;
    int detail = 0;
    FailureKind kind = FailureKind::kUnspecified;
  };

  Member(World* world, Ledger* ledger, int host, std::string mark, PacketSocket socket);

  void StartClient(std::function<void(Member&)> welcomed);
  void StartWorker(const ProcAddress& address, const StartToken& token, const WorkerPlan& plan);
  void Signal(int signal);
  // Asks to be introduced.
  void Connect(const ProcAddress& peer);
  // To a peer that it was introduced to for relaying; does nothing for others. `bytes` go by its segment.
  void SendFrame(const ProcAddress& peer, size_t bytes);
  void SendGarbage();
  // It lives on without its daemon.
  void CloseConnection() { mailbox_.reset(), cut_off_ = true; }
  void Goodbye();

  const ProcAddress& address() const { return address_; }
  const SessionId& session() const { return session_; }
  const StartToken& control_token() const { return control_token_; }
  bool welcome() const { return welcome_; }
  bool is_client() const { return is_client_; }
  // Its connection to the daemon is over.
  bool cut_off() const { return cut_off_; }
  const std::map<ProcAddress, Notice>& notices() const { return notices_; }
  const std::map<ProcAddress, bool>& peers() const { return peers_; }
  uint64_t sent_to(const ProcAddress& peer) const { return CountOf(sent_, peer); }
  // What came from it, and what came back of what was sent to it.
  uint64_t received_from(const ProcAddress& peer) const { return CountOf(received_, peer); }
  uint64_t returned_of(const ProcAddress& peer) const { return CountOf(returned_, peer); }

 private:
  void OnDeath() override { mailbox_.reset(); }
  void OnPacket(Packet* packet);
  void OnMessage(const ControlMessage& message);
  void OnNotice(const ControlMessage& message);
  void OnFrame(const std::string& bytes);
  static uint64_t CountOf(const std::map<ProcAddress, uint64_t>& counts, const ProcAddress& peer) {
    const auto found = counts.find(peer);
    return found == counts.end() ? 0 : found->second;
  }
  void OnReturned(const ControlMessage& message);
  void Hello(const char* role, Value::Map more);

  Ledger* const ledger_;
  std::unique_ptr<Mailbox> mailbox_;
  bool is_client_ = false;
  bool welcome_ = false;
  bool cut_off_ = false;
  ProcAddress address_;
  SessionId session_;
  StartToken control_token_;
  WorkerPlan plan_;
  std::function<void(Member&)> on_welcome_;
  std::map<ProcAddress, Notice> notices_;
  std::map<ProcAddress, bool> peers_;  // introduced; whether by relay
  std::map<ProcAddress, uint64_t> sent_;
  std::map<ProcAddress, uint64_t> received_;
  std::map<ProcAddress, uint64_t> returned_;
};

}  // namespace monarch::sim
