#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "message/control_message.h"
#include "message/death_board.h"
#include "message/packet_socket.h"

namespace monarch {

// A daemon for tests: welcomes processes over socket pairs, introduces them to each other, relays, and says
// that they are dead when told to. All of one session. Threading: thread-safe; serves on a thread of its own.
class FakeDaemon {
 public:
  struct Options {
    bool relay = false;     // no rings: all frames go through here
    std::string refuse;     // not empty: the answer to every hello
    bool silent = false;    // answers nothing
    bool introduce = true;  // false: kConnect stays without answer until Introduce()
  };
  FakeDaemon() : FakeDaemon(Options()) {}
  explicit FakeDaemon(const Options& options);
  ~FakeDaemon();

  // The process's end of a new native socket.
  PacketSocket NewProcess();
  // Tells everybody else. `event.actor` is filled in.
  void Kill(const ProcAddress& proc, FailureEvent event);
  // As its launcher would: marks the rings with `proc` and wakes who sleeps; nobody hears of it from here.
  // Status -1: what any process of the session could do, the marks without the word on the board.
  void TellOnBoard(const ProcAddress& proc, int wait_status);
  void Detail(const ProcAddress& proc, FailureEvent event);
  void Stop(const ProcAddress& proc, const std::string& reason, int grace_ms);
  // Answers what waits for an introduction, and introduces at once from now on.
  void Introduce();
  // Closes all sockets.
  void End();
  // Control messages received, by type, beside hello and connect.
  std::vector<ControlMessage> Received(ControlType type);
  // Blocks until at least `count` of the type have arrived; false after 10 s.
  bool AwaitReceived(ControlType type, size_t count);
  uint64_t relayed() const;
  SessionId session() const { return session_; }

 private:
  struct Process {
    PacketSocket socket;
    ProcAddress address;
    std::vector<ScopedFd> pages;             // doorbell, bell, segment
    uint32_t bits = 0;                       // news bits given out
    std::map<ProcAddress, uint32_t> bit_of;  // ... for the ring with that one
    std::vector<std::string> waiting;        // frames that did not fit
    bool dead = false;
  };
  void RunInLoop(std::function<void()> task);
  void OnReadable(int fd);
  void OnPacket(Process* process, Packet packet);
  void OnHello(Process* process, const ControlMessage& message, std::vector<ScopedFd> fds);
  void OnConnect(Process* process, const Value& body);
  void OnFrame(Process* from, const Packet& packet);
  void Forward(Process* to);
  void Pair(Process* a, Process* b);
  void Introduce(Process* to, const Process& peer, int ring, const Value::Map& extra);
  void Send(Process* to, ControlType type, uint32_t request, Value::Map body, absl::Span<const int> fds = {});
  Process* Find(const ProcAddress& address);

  const Options options_;
  const SessionId session_ = SessionId::Random();
  const HostId host_ = HostId::Random();
  std::unique_ptr<EventLoop> loop_;
  std::thread thread_;

  // Confined to the loop.
  bool introduce_ = true;
  std::map<int, std::unique_ptr<Process>> processes_;  // by fd
  std::vector<std::pair<ProcAddress, ProcAddress>> unanswered_;
  std::vector<std::pair<ProcAddress, ProcAddress>> paired_;
  std::map<ProcAddress, FailureEvent> dead_;
  DeathBoard board_;
  uint64_t last_proc_ = 0;

  mutable Mutex mu_;
  std::vector<ControlMessage> received_ ABSL_GUARDED_BY(mu_);
  uint64_t relayed_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace monarch
